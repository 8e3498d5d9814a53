package evictions

import (
	"fmt"
	"iter"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// Gangs tells what runs of gangs.
type Gangs interface {
	// Running returns what runs of a gang of a profile, and of the gangs that start together with it; none if the gang
	// is unknown.
	Running(profile string, key gangspec.Key) []gangstate.RunningGang
	// IsEvictedAlone reports whether a pod is evicted alone, whichever scheduler placed it.
	IsEvictedAlone(pod *v1.Pod) bool
	// PodGroupsOf returns what the PodGroups of a gang say, whichever scheduler placed it.
	PodGroupsOf(key gangspec.Key) gangspec.PodGroups
}

// Owner is the gang of pods, or a pod in no gang.
type Owner struct {
	Profile string
	Gang    gangspec.Key
	// Pod is empty for a gang.
	Pod types.UID
}

// OwnerOf returns the gang of a pod; the pod itself if it is evicted alone.
func OwnerOf(gangs Gangs, pod *v1.Pod) Owner {
	if key, _, ok := gangspec.KeyOf(pod); ok && !gangs.IsEvictedAlone(pod) {
		return Owner{Profile: pod.Spec.SchedulerName, Gang: key}
	}
	return Owner{Pod: pod.UID}
}

// IsPod reports whether the owner is a pod in no gang.
func (o Owner) IsPod() bool { return o.Pod != "" }

// ID returns its ID among the gangs of a problem.
func (o Owner) ID() string {
	if o.IsPod() {
		return hold.SinglePod(o.Pod)
	}
	return o.Gang.In(o.Profile)
}

// Together returns what runs of a gang, and of the gangs that start together with it, without those that have no
// running pods, as their profile knows them. For a gang that no profile knows it reads the pods in the cache.
func (e *Evictor) Together(of Owner) ([]gangstate.RunningGang, error) {
	if together, known := running(e.Gangs, of); known {
		return together, nil
	}
	pods, err := e.Pods.Pods(of.Gang.Namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing the members of gang %s: %w", of.Gang, err)
	}
	alone := runningGangOf(e.Gangs, of, byGang(e.Gangs, slices.Values(pods))[of])
	if len(alone.Running) == 0 {
		return nil, nil
	}
	return []gangstate.RunningGang{alone}, nil
}

// running returns what runs of a gang, and of the gangs that start together with it, without those that have no
// running pods; false if no profile knows the gang.
func running(gangs Gangs, of Owner) (together []gangstate.RunningGang, known bool) {
	all := gangs.Running(of.Profile, of.Gang)
	known = slices.ContainsFunc(all, isOf(of))
	return slices.DeleteFunc(all, func(f gangstate.RunningGang) bool { return len(f.Running) == 0 }), known
}

// OnNodes counts the pods of gangs that are on their nodes.
func OnNodes(gangs []gangstate.RunningGang) int {
	n := 0
	for _, f := range gangs {
		for _, member := range f.Running {
			if member.Pod.Spec.NodeName != "" {
				n++
			}
		}
	}
	return n
}

// isOf returns a function that reports whether a running gang is this one.
func isOf(of Owner) func(gangstate.RunningGang) bool {
	return func(f gangstate.RunningGang) bool { return f.Key == of.Gang }
}

// byGang groups the pods that have a node by their gangs, without single pods.
func byGang(known Gangs, pods iter.Seq[*v1.Pod]) map[Owner][]*v1.Pod {
	gangs := map[Owner][]*v1.Pod{}
	for pod := range pods {
		if of := OwnerOf(known, pod); pod.Spec.NodeName != "" && !of.IsPod() {
			gangs[of] = append(gangs[of], pod)
		}
	}
	return gangs
}

// runningGangOf returns what runs of a gang that no profile knows, from its PodGroups and its pods.
func runningGangOf(gangs Gangs, of Owner, pods []*v1.Pod) gangstate.RunningGang {
	said := map[gangspec.Key]gangspec.PodGroups{of.Gang: gangs.PodGroupsOf(of.Gang)}
	if said[of.Gang][gangspec.Native].MakesNoGang() {
		said = nil // its pods are scheduled one by one, and evicted as a gang
	}
	return gangstate.FromObjects(said, pods, time.Time{}).RunningGang(of.Gang)
}

// uidIndex is the name of the index of pods by UID.
const uidIndex = "lockstep.dev/uid"

// PodsByUID returns a function that finds the pods of an informer by their UID.
func PodsByUID(pods cache.SharedIndexInformer) (func(types.UID) (*v1.Pod, bool), error) {
	if _, ok := pods.GetIndexer().GetIndexers()[uidIndex]; !ok {
		if err := pods.AddIndexers(cache.Indexers{uidIndex: func(object any) ([]string, error) {
			pod, ok := object.(*v1.Pod)
			if !ok {
				return nil, nil
			}
			return []string{string(pod.UID)}, nil
		}}); err != nil {
			return nil, fmt.Errorf("indexing pods by UID: %w", err)
		}
	}
	return func(uid types.UID) (*v1.Pod, bool) {
		found, err := pods.GetIndexer().ByIndex(uidIndex, string(uid))
		if err != nil || len(found) == 0 {
			return nil, false
		}
		pod, ok := found[0].(*v1.Pod)
		return pod, ok
	}, nil
}
