package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
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
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), "apiserver_request_total{")
		if !ok {
			continue
		}
		list, value, ok := strings.Cut(rest, "} ")
		if !ok {
			return nil, fmt.Errorf("reading metrics: %q has no value", rest)
		}
		labels := map[string]string{}
		for pair := range strings.SplitSeq(list, ",") {
			name, quoted, _ := strings.Cut(pair, "=")
			labels[name] = strings.Trim(quoted, `"`)
		}
		if !writing[labels["verb"]] || labels["resource"] == "leases" {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("reading metrics: %w", err)
		}
		what := labels["verb"] + " " + labels["resource"]
		if labels["subresource"] != "" {
			what += "/" + labels["subresource"]
		}
		counts[what] += int(n)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
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

// since is what was written after before.
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
	quietPoll  = 500 * time.Millisecond
	quietLimit = 30 * time.Second
)

// untilQuiet waits until a second has passed without a write, or too long.
func (f *fixture) untilQuiet(ctx context.Context) error {
	last := -1
	quiet := 0
	for start := time.Now(); quiet < 2 && time.Since(start) < quietLimit; {
		now, err := f.writesNow(ctx)
		if err != nil {
			return err
		}
		if quiet++; now.total() != last {
			quiet = 0
		}
		last = now.total()
		if err := pause(ctx, quietPoll); err != nil {
			return err
		}
	}
	return nil
}
