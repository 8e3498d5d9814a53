package scenario

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

// fleet is shared by the tests that need a control plane.
var fleet *Fleet

func TestMain(m *testing.M) {
	os.Exit(runMain(m))
}

func runMain(m *testing.M) int {
	var err error
	if fleet, err = NewFleet(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := fleet.Close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestRunnerWithPlainPods(t *testing.T) {
	t.Parallel()
	s, err := Load("testdata/plain-pods.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if report := (&Runner{Fleet: fleet}).Run(t.Context(), s); report.Failed() {
		t.Error(report)
	}
}
