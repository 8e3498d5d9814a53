package main

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// cpuOf returns the CPU time that a process has used.
func cpuOf(pid int) (time.Duration, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("reading CPU time: %w", err)
	}
	stat, err := process.Stat()
	if err != nil {
		return 0, fmt.Errorf("reading CPU time: %w", err)
	}
	return seconds(stat.CPUTime()), nil
}

// busyCPU returns the CPU time that the whole machine has used.
func busyCPU() (time.Duration, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, fmt.Errorf("reading CPU time: %w", err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0, fmt.Errorf("reading CPU time: %w", err)
	}
	all := stat.CPUTotal
	return seconds(all.User + all.Nice + all.System + all.IRQ + all.SoftIRQ), nil
}

// peakOf returns the most memory that a process has had resident, in MiB.
func peakOf(pid int) (float64, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("reading peak memory: %w", err)
	}
	status, err := process.NewStatus()
	if err != nil {
		return 0, fmt.Errorf("reading peak memory: %w", err)
	}
	return float64(status.VmHWM) / (1 << 20), nil
}
