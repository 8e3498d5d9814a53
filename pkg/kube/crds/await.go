package crds

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// awaitEvery is how often Await checks.
const awaitEvery = 2 * time.Second

// awaited are the kinds for which a running Await has logged that it waits.
var awaited sync.Map

// Await returns true when the API server serves a kind, and false when ctx is done. That it
// waits is logged once for all callers in a process that wait for the same kind.
func Await(ctx context.Context, mapper meta.RESTMapper, kind schema.GroupVersionKind) bool {
	logger := klog.FromContext(ctx)
	told := false
	defer func() {
		if told {
			awaited.Delete(kind)
		}
	}()
	err := wait.PollUntilContextCancel(ctx, awaitEvery, true, func(context.Context) (bool, error) {
		_, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		switch {
		case err == nil:
			if told {
				logger.Info("The API server serves the kind now", "kind", kind.String())
			}
			return true, nil
		case !meta.IsNoMatchError(err):
			logger.Error(err, "Failed to ask the API server for a kind; asking again", "kind", kind.String())
		case !told:
			if _, before := awaited.LoadOrStore(kind, true); before {
				break
			}
			told = true
			logger.Info("Waiting for a CRD: the API server does not serve its kind", "kind", kind.String())
		}
		return false, nil
	})
	return err == nil
}
