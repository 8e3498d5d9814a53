package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// Pods of a gang that name another scheduler than a profile are no members there, which their author may not know.

// gangIndex indexes pods by the gang that they name.
const gangIndex = "lockstep.dev/gang"

func byGang(object any) ([]string, error) {
	if pod, ok := object.(*v1.Pod); ok {
		if key, _, member := gangspec.KeyOf(pod); member {
			return []string{key.String()}, nil
		}
	}
	return nil, nil
}

// indexPods returns the pods of an informer with their index by gang.
func indexPods(informer cache.SharedIndexInformer) (cache.Indexer, error) {
	pods := informer.GetIndexer()
	if _, known := pods.GetIndexers()[gangIndex]; known {
		return pods, nil
	}
	if err := informer.AddIndexers(cache.Indexers{gangIndex: byGang}); err != nil {
		return nil, fmt.Errorf("indexing pods by gang: %w", err)
	}
	return pods, nil
}

// explainToOthers updates the explanations of other profiles' gangs that a pod of another scheduler has joined or left.
// before and now are its versions; nil if it does not exist.
func (r *Registry) explainToOthers(ctx context.Context, before, now *v1.Pod) {
	var keys []gangspec.Key
	scheduler := ""
	for _, pod := range []*v1.Pod{before, now} {
		if pod == nil {
			continue
		}
		scheduler = pod.Spec.SchedulerName
		if key, _, member := gangspec.KeyOf(pod); member {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 || len(keys) == 2 && keys[0] == keys[1] {
		return
	}
	for name := range r.all() {
		if name != scheduler {
			r.Explain(ctx, name, keys)
		}
	}
}

// textOtherSchedulers returns text for a gang that lacks members: how many of its pods name another scheduler than the
// profile, and which; empty if none do.
func (r *Registry) textOtherSchedulers(key gangspec.Key, profile string) string {
	if r.podsByGang == nil {
		return "" // pods are not watched yet
	}
	objects, err := r.podsByGang.ByIndex(gangIndex, key.String())
	if err != nil {
		klog.Background().Error(err, "Failed to look up the pods of a gang", "gang", key)
		return ""
	}
	var others []string
	for _, object := range objects {
		if name := object.(*v1.Pod).Spec.SchedulerName; name != profile {
			others = append(others, name)
		}
	}
	count := len(others)
	if count == 0 {
		return ""
	}
	verb := "names"
	if count > 1 {
		verb = "name"
	}
	slices.Sort(others)
	names := strings.Join(slices.Compact(others), ", ")
	return fmt.Sprintf("; %d more %s another scheduler: %s (set spec.schedulerName: %s)", count, verb, names, profile)
}
