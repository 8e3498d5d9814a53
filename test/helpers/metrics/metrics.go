// Package metrics reads the metrics of processes in tests.
package metrics

import (
	"context"
	"fmt"

	"k8s.io/component-base/metrics/testutil"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// Of returns the metrics that a process serves at a URL, by name.
func Of(ctx context.Context, url string) (testutil.Metrics, error) {
	text, err := localcluster.Fetch(ctx, url+"/metrics")
	if err != nil {
		return nil, err
	}
	return Parse(text)
}

// Parse reads the text of metrics, by name.
func Parse(text []byte) (testutil.Metrics, error) {
	metrics := testutil.NewMetrics()
	if err := testutil.ParseMetrics(string(text), &metrics); err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	return metrics, nil
}
