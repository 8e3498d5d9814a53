package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc: USER_HZ, 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// cpuOf returns the CPU time that a process has used.
func cpuOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading CPU time: %w", err)
	}
	return parseCPU(stat)
}

// parseCPU reads utime and stime, fields 14 and 15.
func parseCPU(stat []byte) (time.Duration, error) {
	// The command, in parentheses, may contain blanks; what follows it starts with field 3.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const user, system = 14 - 3, 15 - 3
	if len(fields) <= system {
		return 0, fmt.Errorf("reading CPU time: %q is too short", stat)
	}
	return sumTicks(fields[user], fields[system])
}

func sumTicks(fields ...string) (time.Duration, error) {
	var sum time.Duration
	for _, field := range fields {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading CPU time: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// busyCPU returns the CPU time that the whole machine has used.
func busyCPU() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("reading CPU time: %w", err)
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	// cpu user nice system idle iowait irq softirq ...
	fields := strings.Fields(line)
	if len(fields) < 8 {
		return 0, fmt.Errorf("reading CPU time: %q is too short", line)
	}
	return sumTicks(fields[1], fields[2], fields[3], fields[6], fields[7])
}

// peakOf returns the most memory that a process has had resident, in MiB.
func peakOf(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading peak memory: %w", err)
	}
	return parsePeak(string(status))
}

func parsePeak(status string) (float64, error) {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err != nil {
				return 0, fmt.Errorf("reading peak memory: %w", err)
			}
			return kib / 1024, nil
		}
	}
	return 0, fmt.Errorf("reading peak memory: the process has none")
}
