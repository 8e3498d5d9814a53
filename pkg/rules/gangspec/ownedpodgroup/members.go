package ownedpodgroup

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/jobsuspension"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Members are the members that an owner makes.
type Members struct {
	// Min is the number of members that start together, fewer than there are where the gang is elastic; 0 means that there
	// are none.
	Min int
	// Stages are the sizes of the parts that are made one after the other, whose sum is Min; nil where all members are
	// made at once.
	Stages []int
	// Resources are what the stages take that run at the same time: the first of them need not start where the others have
	// no room. Nil where each ends before the next begins.
	Resources v1.ResourceList
	// Suspended: the number of pods that the owner makes next is unknown, whatever pods exist.
	Suspended bool
	// LeftOut are the replicated jobs that are made last and do not count, because it is unknown how many pods of those
	// before them exist at a time.
	LeftOut []string
}

// part is the members that are made at the same time.
type part struct {
	count int
	room  resource.Vector
	// afterPredecessorsEnd: they are made when the members before them have ended.
	afterPredecessorsEnd bool
}

func (p *part) add(n int, pod *v1.PodTemplateSpec) {
	p.count += n
	if p.room == nil {
		p.room = resource.Vector{}
	}
	for name, amount := range resource.OfOne(resource.RequestsOfTemplate(pod)) {
		p.room[name] = resource.Plus(p.room[name], resource.Times(amount, int64(n)))
	}
}

// membersOf returns the members of parts that are made one after the other.
func membersOf(parts []part) Members {
	parts = slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.count == 0 })
	m := Members{}
	for _, p := range parts {
		m.Min += p.count
		m.Stages = append(m.Stages, p.count)
	}
	if len(parts) < 2 {
		m.Stages = nil
		return m
	}
	if room := most(parts); room != nil {
		m.Resources = room.List()
	}
	return m
}

// most returns the most, resource by resource, that parts take which run at the same time; nil where no parts
// do.
func most(parts []part) resource.Vector {
	var most resource.Vector
	for from := 0; from < len(parts); {
		to, room := from+1, maps.Clone(parts[from].room)
		for ; to < len(parts) && !parts[to].afterPredecessorsEnd; to++ {
			for name, amount := range parts[to].room {
				room[name] = resource.Plus(room[name], amount)
			}
		}
		if to-from > 1 && most == nil {
			most = resource.Vector{}
		}
		for name, amount := range room {
			if to-from > 1 {
				most[name] = max(most[name], amount)
			}
		}
		from = to
	}
	return most
}

// PodsAtOnce returns how many pods of a Job exist at a time. endless: more come when some have succeeded.
func PodsAtOnce(spec *batchv1.JobSpec) (n int, endless bool) {
	n = int(ptr.Deref(spec.Parallelism, 1))
	if spec.Completions == nil {
		return n, false
	}
	completions := int(*spec.Completions)
	return min(n, completions), n < completions
}

// ofJob returns the members of a Job. standing is how many of its pods have succeeded and still exist: those
// count as members. Others that have succeeded do not come again, nor do indexes that have failed for good.
func ofJob(job *batchv1.Job, standing int) Members {
	if jobsuspension.IsSuspended(job) {
		return Members{Suspended: true}
	}
	n, _ := PodsAtOnce(&job.Spec)
	if job.Spec.Completions != nil {
		gone := max(0, int(job.Status.Succeeded)-standing)
		n = min(n, int(*job.Spec.Completions)-gone-FailedIndexes(job))
	}
	least, err := strconv.Atoi(job.Spec.Template.Annotations[v1alpha1.MinAvailableAnnotation])
	if err == nil && least > 0 {
		n = min(n, least) // it is elastic: what its pods say counts, and the PodGroup says the same
	}
	return Members{Min: max(0, n)}
}

// FailedIndexes returns how many indexes of a Job with spec.backoffLimitPerIndex have failed for good. The Job's status
// lists them as numbers and ranges, such as 1,3-5.
func FailedIndexes(job *batchv1.Job) int {
	if job.Status.FailedIndexes == nil || *job.Status.FailedIndexes == "" {
		return 0
	}
	n := 0
	for text := range strings.SplitSeq(*job.Status.FailedIndexes, ",") {
		first, last, isRange := strings.Cut(text, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || to < from {
			return 0 // the Job controller does not write this
		}
		n += to - from + 1
	}
	return n
}

// lowered returns the annotation min-available of a PodGroup that asks for more members than its workload makes at a
// time; empty where it does not.
func lowered(members int, minMember int32) string {
	if members == 0 || members >= int(minMember) {
		return ""
	}
	return strconv.Itoa(members)
}
