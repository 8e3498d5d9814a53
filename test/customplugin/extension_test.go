// Package customplugin builds the example module seats, a lockstep-scheduler with a plugin from another module, and
// runs it.
package customplugin

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/harness/scenario"
)

// TestPluginOfAnotherModule: it is added with app.WithPlugin, and its hooks and its gang extension point are
// called.
func TestPluginOfAnotherModule(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "seats")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = "seats"
	build.Env = append(os.Environ(), "GOFLAGS=-mod=readonly")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the example: %v\n%s", err, out)
	}
	if err := localcluster.Build(t.Context(), os.Stderr, ""); err != nil {
		t.Fatal(err)
	}
	fleet, err := scenario.NewFleet()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := fleet.Close(ctx); err != nil {
			t.Error(fmt.Errorf("taking down the control planes: %w", err))
		}
	})
	s, err := scenario.Load("seats.yaml")
	if err != nil {
		t.Fatal(err)
	}
	runner := scenario.Runner{Fleet: fleet, Scheduler: binary}
	if report := runner.Run(t.Context(), s); report.Failed() {
		t.Error(report)
	}
}
