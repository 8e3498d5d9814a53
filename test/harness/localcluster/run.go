package localcluster

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// runTimeout bounds the start and the end of a cluster of a test, the build not included.
const runTimeout = 2 * time.Minute

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// Run starts a cluster for a test or benchmark, under a name of its own unless o has one, and takes it
// down when the test is over. If the test failed, the last lines of all logs are part of its output.
func Run(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	if o.Name == "" {
		o.Name = testName(tb.Name())
	}
	if err := Build(context.Background(), tb.Output(), o.Kubernetes); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	start := time.Now()
	c, err := Up(ctx, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Logf("cluster %s is up after %s", c.Name(), time.Since(start).Round(time.Millisecond))
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("logs of cluster %s:%s", c.Name(), c.tailLogs())
		}
		ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
		defer cancel()
		if err := c.Down(ctx); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// testName turns the name of a test into that of a cluster. The time keeps two runs of it apart.
func testName(test string) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(test), "-"), "-")
	stamp := strconv.FormatInt(time.Now().UnixNano(), 36)
	return name[:min(len(name), nameLimit-len(stamp)-1)] + "-" + stamp
}
