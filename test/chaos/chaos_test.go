package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/test/chaos/workload"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// shortSeed and shortLength make the run that every change has to pass. make chaos has the long ones.
const (
	shortSeed   = 5
	shortLength = 45 * time.Second
)

// TestShort runs a minute and a half of gangs under faults.
func TestShort(t *testing.T) {
	if err := localcluster.BuildCommands(t.Context()); err != nil {
		t.Fatal(err)
	}
	root, err := localcluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	quietKlog()
	report, err := Run(t.Context(), Options{
		Options: workload.Options{Seed: shortSeed, Length: shortLength, BadInput: true}, Faults: true, Progress: t.Output(),
		Scheduler: filepath.Join(root, "bin", "lockstep-scheduler"),
	})
	if err != nil {
		t.Error(err)
	}
	if report == nil {
		return
	}
	if report.Violated() {
		t.Error(report)
	} else {
		t.Log(report)
	}
	if little := report.Little(); little != "" {
		t.Error("the run shows too little:", little)
	}
	if n := report.counts; n.Binds < 100 || n.Started < 10 || len(report.faults) == 0 {
		t.Errorf("the run shows little: %d binds, %d gangs started, %d kinds of faults", n.Binds, n.Started, len(report.faults))
	}
}
