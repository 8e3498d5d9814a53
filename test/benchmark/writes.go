package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/metrics"
)

// writes counts the writes that the API server has answered, by verb and resource:
// "POST pods/binding". Its own leases are not counted.
type writes map[string]int

var writing = map[string]bool{"POST": true, "PUT": true, "PATCH": true, "DELETE": true, "DELETECOLLECTION": true, "APPLY": true}

// writesNow asks the API server.
func (f *fixture) writesNow(ctx context.Context) (writes, error) {
	data, err := f.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading metrics of the API server: %w", err)
	}
	return parseWrites(data)
}

func parseWrites(text []byte) (writes, error) {
	served, err := metrics.Parse(text)
	if err != nil {
		return nil, err
	}
	counts := writes{}
	for _, s := range served["apiserver_request_total"] {
		verb, resource := string(s.Metric["verb"]), string(s.Metric["resource"])
		if !writing[verb] || resource == "leases" {
			continue
		}
		if subresource := string(s.Metric["subresource"]); subresource != "" {
			resource += "/" + subresource
		}
		counts[verb+" "+resource] += int(s.Value)
	}
	return counts, nil
}

func (w writes) total() int {
	n := 0
	for _, count := range w {
		n += count
	}
	return n
}

// since returns what was written after before.
func (w writes) since(before writes) writes {
	delta := writes{}
	for what, n := range w {
		if n > before[what] {
			delta[what] = n - before[what]
		}
	}
	return delta
}

// per lists what was written, the most frequent first, divided by n.
func (w writes) per(n int) string {
	keys := slices.SortedFunc(maps.Keys(w), func(a, b string) int { return cmp.Or(cmp.Compare(w[b], w[a]), cmp.Compare(a, b)) })
	parts := make([]string, len(keys))
	for i, what := range keys {
		parts[i] = fmt.Sprintf("%s %.3g", what, float64(w[what])/float64(n))
	}
	return strings.Join(parts, ", ")
}

const (
	quietPoll = 500 * time.Millisecond
	// quietPolls have to pass without a write; it is more than the controller lets events gather.
	quietPolls = 4
	quietLimit = 30 * time.Second
)

// untilQuiet waits until two seconds have passed without a write, or too much time.
func (f *fixture) untilQuiet(ctx context.Context) error {
	last := -1
	quiet := 0
	for start := time.Now(); quiet < quietPolls && time.Since(start) < quietLimit; {
		now, err := f.writesNow(ctx)
		if err != nil {
			return err
		}
		if quiet++; now.total() != last {
			quiet = 0
		}
		last = now.total()
		if err := await.Pause(ctx, quietPoll); err != nil {
			return err
		}
	}
	return nil
}
