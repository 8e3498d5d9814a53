package histories

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/overlayserver"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
)

var (
	seed  = flag.Uint64("seed", 1, "The first seed.")
	count = flag.Int("histories", 20, "How many histories, each with the next seed.")
	file  = flag.String("history", "", "A file with a history, instead of made-up ones.")

	shrinkFor = flag.Duration("shrink", time.Minute, "How long to look for a smaller history that fails.")
	logFile   = flag.String("log", "", "Where to write the log of the scheduler.")
	verbosity = flag.String("verbosity", "0", "The verbosity of that log.")
)

func TestHistories(t *testing.T) {
	quietLog(t)
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] // the other one remembers when it was called, in whichever bubble
	// What these start once in a process must not start in a bubble.
	klog.StartFlushDaemon(time.Second)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR1)
	dump, err := readServed()
	if err != nil {
		t.Fatal(err)
	}
	transport := http.DefaultTransport
	defer func() { http.DefaultTransport = transport }()
	total, reached, failed, began := map[string]int{}, map[string]int{}, 0, time.Now()
	for _, h := range histories(t) {
		o := playIn(t, dump, h)
		for promise, n := range o.counts {
			total[promise] += n
			reached[promise]++
		}
		if len(o.found) == 0 {
			if *file != "" {
				t.Logf("What happened:\n%s", o.story)
			}
			continue
		}
		failed++
		t.Logf("seed %d: %s", h.Seed, strings.Join(o.found, "\n"))
		until := time.Now().Add(*shrinkFor)
		small := h.shrink(func(less *History) bool {
			if time.Now().After(until) {
				return false
			}
			other := playIn(t, dump, less)
			if len(other.found) == 0 || promiseOf(other) != promiseOf(o) {
				return false
			}
			o = other
			return true
		})
		text, err := yaml.Marshal(small)
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("seed %d fails: %s\nThe smallest history found that does, for -history FILE:\n%s\nand what happened:\n%s", h.Seed, strings.Join(o.found, "\n"), text, o.story)
	}
	t.Logf("%d of %d histories failed; %v", failed, *count, time.Since(began).Round(time.Second))
	for _, promise := range slices.Sorted(maps.Keys(total)) {
		t.Logf("%-14s judged %d times, in %d of them", promise, total[promise], reached[promise])
	}
}

// histories returns those that are asked for.
func histories(t *testing.T) (all []*History) {
	if *file != "" {
		data, err := os.ReadFile(*file)
		if err != nil {
			t.Fatal(err)
		}
		h := &History{}
		if err := yaml.UnmarshalStrict(data, h); err != nil {
			t.Fatal(err)
		}
		return []*History{h}
	}
	for i := range *count {
		all = append(all, makeHistory(*seed+uint64(i)))
	}
	return all
}

// outcome is what became of a history.
type outcome struct {
	found  []string
	counts map[string]int
	story  string
}

func promiseOf(o outcome) string { return strings.Split(o.found[0], ":")[0] }

// playIn lets a history happen in a bubble of its own, in which time passes while every goroutine waits.
func playIn(t *testing.T, dump *source.Dump, h *History) (o outcome) {
	server, err := overlayserver.Start(dump)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	dir := t.TempDir()
	var lines []string
	synctest.Test(t, func(t *testing.T) {
		var err error
		o.found, o.counts, err = h.play(server, dir, func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
		if err != nil {
			t.Error(err)
		}
	})
	o.story = strings.Join(lines, "\n")
	return o
}

// quietLog directs the scheduler's log to a file, or nowhere.
func quietLog(t *testing.T) {
	to := cmp.Or(*logFile, os.DevNull)
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true", "log_file": to, "v": *verbosity} {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(klog.Flush)
}
