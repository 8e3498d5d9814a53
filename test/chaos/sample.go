package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/lockstep-sh/lockstep/test/chaos/invariant"
	"github.com/lockstep-sh/lockstep/test/chaos/workload"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/metrics"
)

const (
	// sampleEvery is the interval of samples in a steady run.
	sampleEvery = time.Minute
	mebi        = 1 << 20
)

// sampled are the metrics that are sampled, with what they are divided by.
var sampled = map[string]struct {
	what string
	unit float64
}{
	"process_resident_memory_bytes": {"resident MiB", mebi},
	"go_gc_heap_live_bytes":         {"heap in use after GC, MiB", mebi},
	"go_goroutines":                 {"goroutines", 1},
	"process_open_fds":              {"open files", 1},
}

// clientWrites is what the API requests of a process add up to that do not only read. It is not sampled itself.
const clientWrites = "writes"

// leads ends the name of a process that leads.
const leads = ", leads"

// sample samples all processes until ctx ends. A process that is started again, or that begins to lead, begins a new
// series. One that is stopped is left out.
func (s *stage) sample(ctx context.Context) {
	type mark struct {
		writes float64
		binds  int
	}
	last := map[string]mark{}
	for await.Pause(ctx, sampleEvery) == nil && s.health.waitWell(ctx) == nil {
		leaders := map[workload.Target]*replica{}
		for target := range s.health.replicas {
			if lease, err := s.health.lease(ctx, target); err == nil {
				leaders[target] = s.health.leader(target, lease)
			}
		}
		for _, r := range s.replicas {
			name, values, err := r.sample(ctx)
			if err != nil {
				s.seen.fault("not sampled: %v", err)
				continue
			}
			if leaders[r.target] == r {
				name += leads
			}
			now := mark{writes: values[clientWrites]}
			delete(values, clientWrites)
			s.seen.with(func(c *invariant.Checker) { now.binds = c.Counts().Binds })
			if before, known := last[name]; known && now.binds > before.binds {
				values["API writes per bound pod"] = (now.writes - before.writes) / float64(now.binds-before.binds)
			}
			last[name] = now
			s.samples.add(name, values)
		}
		s.samples.add(load.process, map[string]float64{load.what: float64(s.seen.count())})
		text, err := s.cluster.Clientset().Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			s.seen.fault("not sampled: %v", err)
			continue
		}
		served, err := metrics.Parse(text)
		if err != nil {
			s.seen.fault("not sampled: %v", err)
			continue
		}
		watches := 0.0
		for _, one := range served["apiserver_longrunning_requests"] {
			if one.Metric["verb"] == "WATCH" {
				watches += float64(one.Value)
			}
		}
		s.samples.add("API server", map[string]float64{"open watches": watches})
	}
}

// sample returns the name of the process that runs now, and what is sampled of it.
func (r *replica) sample(ctx context.Context) (name string, values map[string]float64, err error) {
	r.mu.Lock()
	process := r.process
	name = fmt.Sprintf("%s, start %d", r.name, r.starts)
	r.mu.Unlock()
	if process == nil {
		return "", nil, fmt.Errorf("sampling %s: it does not run", r.name)
	}
	served, err := r.readMetrics(ctx)
	if err != nil {
		return "", nil, err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/cwd/", process.Pid()))
	if err != nil {
		return "", nil, fmt.Errorf("sampling %s: %w", r.name, err)
	}
	values = map[string]float64{"files in its folder": float64(len(files))}
	for name, all := range served {
		values["series on /metrics"] += float64(len(all))
		if one, ok := sampled[name]; ok {
			values[one.what] = float64(all[0].Value) / one.unit
		}
	}
	for _, one := range served["rest_client_requests_total"] {
		if one.Metric["method"] != http.MethodGet {
			values[clientWrites] += float64(one.Value)
		}
	}
	return name, values, nil
}
