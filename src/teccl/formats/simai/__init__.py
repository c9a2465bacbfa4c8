"""SimAI's topology text: that of ns-3 with servers and NVSwitches told apart."""
