"""The transfer estimators on real and made-up shifts: harm, gain, monotony, speed."""
