package localcluster

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestBelongsWhileItStarts: a process that is about to run its program, or another one, belongs to its cluster all the
// time: one that was taken for ended would be started twice, and the second could not have its port.
func TestBelongsWhileItStarts(t *testing.T) {
	program, err := os.Executable() // large, as the components are
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for range 20 {
		cmd := exec.Command("sh", "-c", `exec "$0" -test.run=TestStaysForAWhile`, program)
		cmd.Env = []string{markerKey + "=" + dir, staysKey + "=1"}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid, looks, missed := cmd.Process.Pid, 0, 0
		for end := time.Now().Add(30 * time.Millisecond); time.Now().Before(end); looks++ {
			if !belongs(pid, dir) && startTime(pid) != "" {
				missed++
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if missed > 0 {
			t.Fatalf("the process was not known as one of the cluster in %d of %d looks while it started", missed, looks)
		}
	}
}

const staysKey = "LOCKSTEP_TEST_STAYS"

// TestStaysForAWhile is the program of the test above.
func TestStaysForAWhile(t *testing.T) {
	if os.Getenv(staysKey) == "" {
		t.Skip("run by TestBelongsWhileItStarts")
	}
	time.Sleep(time.Minute)
}
