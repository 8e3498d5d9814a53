package ownedpodgroup

import (
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// group is what is known of a group of a LeaderWorkerSet.
type group struct {
	// size is the number of its pods; 0 for the size in the spec of the LeaderWorkerSet.
	size int
	// leader and workers: they are in the gang.
	leader, workers bool
}

// ofGroup returns the members of a group of a LeaderWorkerSet.
func ofGroup(lws *leaderWorkerSet, g group) Members {
	template := &lws.Spec.LeaderWorkerTemplate
	if g.size == 0 {
		g.size = int(ptr.Deref(template.Size, 1))
	}
	var leader, workers part
	if g.leader {
		leader.add(1, lws.leaderTemplate())
	}
	if g.workers {
		workers.add(g.size-1, &template.WorkerTemplate)
	}
	_, exclusive := lws.Metadata.Annotations[groupExclusive]
	if lws.Spec.StartupPolicy == startupLeaderReady || exclusive {
		return membersOf([]part{leader, workers})
	}
	return Members{Min: leader.count + workers.count}
}

// leaderTemplate returns the template of the leaders.
func (lws *leaderWorkerSet) leaderTemplate() *v1.PodTemplateSpec {
	if template := lws.Spec.LeaderWorkerTemplate.LeaderTemplate; template != nil {
		return template
	}
	return &lws.Spec.LeaderWorkerTemplate.WorkerTemplate
}

// groupOf returns the group of which some pods are in its gang. Where a template does not set the annotation, its pods
// are in the gang if one of them is already, or if the other template does not set it either: then a policy has written
// it on the pods.
func groupOf(lws *leaderWorkerSet, pods []*v1.Pod) group {
	asks := func(own, other *v1.PodTemplateSpec, seen bool) bool {
		if value, says := own.Annotations[v1alpha1.GangAnnotation]; says {
			return value != ""
		}
		_, otherSays := other.Annotations[v1alpha1.GangAnnotation]
		return seen || !otherSays
	}
	isLeader := func(pod *v1.Pod) bool { return pod.Labels[v1alpha1.LeaderWorkerIndexLabel] == leaderIndex }
	isWorker := func(pod *v1.Pod) bool { return !isLeader(pod) }
	leader, worker := lws.leaderTemplate(), &lws.Spec.LeaderWorkerTemplate.WorkerTemplate
	return group{
		size:    sizeOf(pods),
		leader:  asks(leader, worker, slices.ContainsFunc(pods, isLeader)),
		workers: asks(worker, leader, slices.ContainsFunc(pods, isWorker)),
	}
}

// sizeOf returns how many pods the group of a LeaderWorkerSet has, by its leader; 0 where no leader has that.
func sizeOf(pods []*v1.Pod) int {
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && pod.Labels[v1alpha1.LeaderWorkerIndexLabel] == leaderIndex {
			if size, err := strconv.Atoi(pod.Annotations[groupSize]); err == nil && size > 0 {
				return size
			}
		}
	}
	return 0
}

// HasGroup reports whether a LeaderWorkerSet has a group of an index.
func HasGroup(set *unstructured.Unstructured, index int) (bool, error) {
	lws := &leaderWorkerSet{}
	if err := convert(set, lws); err != nil {
		return false, err
	}
	return index < int(ptr.Deref(lws.Spec.Replicas, 1)), nil
}
