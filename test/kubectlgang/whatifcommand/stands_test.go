package whatifcommand_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// TestStands: explain reports how far a gang has come, as the cluster has it.
func TestStands(t *testing.T) {
	c := start(t)
	c.apply(classes)
	stands := func(gang, want string) {
		await.NoError(t, "explain tells how "+gang+" stands", func() error {
			out, err := c.tryRun("explain", gang, "-v")
			if err == nil && !strings.Contains(string(out), "\nState: "+want+"; ") {
				err = fmt.Errorf("want %q: %w", want, errors.New(string(out)))
			}
			return err
		})
	}
	c.apply(job("slow", 2, 8, `gang.scheduling.koordinator.sh/timeout: "true"`)) // as the scheduler writes it
	stands("slow", "Pending, timed out; 0 of 2 members have a node, 0 have one nominated")
	c.clear()
	c.apply(strings.ReplaceAll(job("low", 8, 8), "terminationGracePeriodSeconds: 0", "terminationGracePeriodSeconds: 60"))
	stands("low", "Running, bound; 8 of 8 members have a node, 0 have one nominated")
	c.apply(job("train", 2, 8, rack, "class: high"))
	stands("train", "PreScheduling, preempting; 0 of 2 members have a node, 2 have one nominated")
}
