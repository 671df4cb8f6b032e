package sample

import "testing"

func TestGrade(t *testing.T) {
	var done []string
	if grade(49, &done) != "c" || grade(50, &done) != "b" || grade(90, &done) != "a" {
		t.Error(done)
	}
}

func TestSum(t *testing.T) {
	if s := sum([]float64{1, 2}, 6); s != -3 {
		t.Error(s)
	}
}
