package gangstate

import (
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Some owners make all their pods anew, and begin before those that they made last are being deleted. JobSet
// makes the Jobs of its next attempt one by one, each as soon as its predecessor is gone. The leader of a group
// of a LeaderWorkerSet owns the StatefulSet of the workers: when it is made anew, Kubernetes deletes
// that StatefulSet and the workers, whatever the restart policy is, but a moment later. Pods of
// which it is known that they go are outlived. They do not count, as if they were being deleted: otherwise the
// gang would pass for running, and the new pods would be bound one by one.

// issue is which issue of a series of pods one belongs to.
type issue struct {
	// series is the pods that an owner makes anew together; empty for a pod that is in none.
	series string
	// number is higher for what was made later.
	number int64
	// supersedes: with this pod everything that has a lower number is outlived.
	supersedes bool
}

// creationSlack is by how many seconds the leader of a group has to be younger than a worker to outlive it: API
// servers whose clocks differ may say of a worker that it is older than its own leader.
const creationSlack = 5

// issueOf reads from its labels which issue a pod belongs to.
func issueOf(pod *v1.Pod) issue {
	if set := pod.Labels[jobSetUID]; set != "" {
		attempt, err := strconv.ParseUint(pod.Labels[jobSetAttempt], 10, 31)
		if err != nil {
			return issue{}
		}
		return issue{series: set, number: int64(attempt), supersedes: true}
	}
	set, group, index := pod.Labels[v1alpha1.LeaderWorkerSetNameLabel], pod.Labels[v1alpha1.LeaderWorkerGroupLabel], pod.Labels[v1alpha1.LeaderWorkerIndexLabel]
	if set == "" || group == "" || index == "" {
		return issue{}
	}
	i := issue{series: set + "/" + group, number: pod.CreationTimestamp.Unix(), supersedes: index == leaderIndex}
	if !i.supersedes {
		i.number += creationSlack
	}
	return i
}

// leaderIndex is the index of the leader of a group of a LeaderWorkerSet.
const leaderIndex = "0"

// issues is the highest number of each series that supersedes others. It does not fall when those pods are deleted.
type issues map[string]int64

// note takes a pod into account, and reports whether others may be outlived now.
func (l issues) note(pod *v1.Pod) bool {
	i := issueOf(pod)
	if i.series == "" || !i.supersedes {
		return false
	}
	if last, known := l[i.series]; known && last >= i.number {
		return false
	}
	l[i.series] = i.number
	return true
}

// outlive reports whether a pod is outlived.
func (l issues) outlive(pod *v1.Pod) bool {
	if len(l) == 0 {
		return false
	}
	i := issueOf(pod)
	last, known := l[i.series]
	return known && i.number < last
}

// recountIssues finds the issues again, since the labels of a member were changed.
func (g *gang) recountIssues() {
	clear(g.issues)
	clear(g.series)
	for _, m := range g.members {
		g.issues.note(m.pod)
		g.series[issueOf(m.pod).series]++
	}
}

// leaveSeries counts a member no longer.
func (g *gang) leaveSeries(m *member) {
	series := issueOf(m.pod).series
	if g.series[series]--; g.series[series] == 0 {
		delete(g.series, series)
	}
}
