"""Running schedules with real bytes: MPI execution, emulated links, measurement, calibration."""
