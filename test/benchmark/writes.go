package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
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

func parseWrites(metrics []byte) (writes, error) {
	counts := writes{}
	for s, err := range samples(metrics, "apiserver_request_total") {
		if err != nil {
			return nil, err
		}
		if !writing[s.labels["verb"]] || s.labels["resource"] == "leases" {
			continue
		}
		what := s.labels["verb"] + " " + s.labels["resource"]
		if s.labels["subresource"] != "" {
			what += "/" + s.labels["subresource"]
		}
		counts[what] += int(s.value)
	}
	return counts, nil
}

// sample is one line of a metric.
type sample struct {
	labels map[string]string
	value  float64
}

// samples returns those of one metric, until the first that cannot be read.
func samples(metrics []byte, name string) iter.Seq2[sample, error] {
	return func(yield func(sample, error) bool) {
		for line := range bytes.Lines(metrics) {
			rest, ok := strings.CutPrefix(strings.TrimSpace(string(line)), name)
			if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
				continue
			}
			s, err := parseSample(rest)
			if err != nil {
				err = fmt.Errorf("reading metric %s: %w", name, err)
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

// parseSample reads what follows the name of a metric: labels, if any, and a value.
func parseSample(text string) (s sample, err error) {
	s.labels = map[string]string{}
	if list, value, ok := strings.Cut(strings.TrimPrefix(text, "{"), "} "); ok {
		for pair := range strings.SplitSeq(list, ",") {
			name, quoted, _ := strings.Cut(pair, "=")
			s.labels[name] = strings.Trim(quoted, `"`)
		}
		text = value
	}
	s.value, err = strconv.ParseFloat(strings.TrimSpace(text), 64)
	return s, err
}

// total returns the sum of all samples of a metric.
func total(metrics []byte, name string) (sum float64, err error) {
	for s, err := range samples(metrics, name) {
		if err != nil {
			return 0, err
		}
		sum += s.value
	}
	return sum, nil
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
