// Package cputime has benchmarks report CPU time: on all cores, and, unlike the time on the clock, the same on a
// machine that does other things too.
package cputime

import (
	"syscall"
	"testing"
)

// Start begins to measure. The function that it returns reports the CPU time of each iteration since then.
func Start(b *testing.B) (report func()) {
	b.Helper()
	before := used(b)
	return func() { b.ReportMetric(float64(used(b)-before)/float64(b.N), "cpu-ns/op") }
}

// used returns the CPU time that this process has used, in nanoseconds.
func used(b *testing.B) int64 {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}
