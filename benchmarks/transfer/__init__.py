"""The transfer estimators on real and synthetic shifts: harm, gain, monotonicity, speed."""
