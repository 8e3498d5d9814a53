package ownergroup

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

// wish is what the PodGroup of a gang should have.
type wish struct {
	// min is the number of members that start together, fewer than there are where the gang is elastic; 0 means that there
	// are none.
	min int
	// stages are the sizes of the parts that are made one after the other, whose sum is min; nil where
	// all members are made at once.
	stages []int
	// room is what the stages take that run at the same time: the first of them need not start
	// where the others have no room. Nil where each ends before the next begins.
	room v1.ResourceList
	// none: the owner is suspended. Whatever pods are in the cache, the number of those that it makes next is unknown.
	none bool
	// leftOut are the replicated jobs that are made last and do not count, because it is
	// unknown how many pods of those before them exist at a time.
	leftOut []string
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

// wishOf returns the sum of parts that are made one after the other.
func wishOf(parts []part) wish {
	parts = slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.count == 0 })
	w := wish{}
	for _, p := range parts {
		w.min += p.count
		w.stages = append(w.stages, p.count)
	}
	if len(parts) < 2 {
		w.stages = nil
		return w
	}
	if room := most(parts); room != nil {
		w.room = room.List()
	}
	return w
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

// podsOf returns how many pods of a Job exist at a time. endless: more come when some have succeeded.
func podsOf(spec *batchv1.JobSpec) (n int, endless bool) {
	n = int(ptr.Deref(spec.Parallelism, 1))
	if spec.Completions == nil {
		return n, false
	}
	completions := int(*spec.Completions)
	return min(n, completions), n < completions
}

// ofJob returns the wish for a Job. standing is how many of its pods have succeeded and still exist: those
// count as members. Others that have succeeded do not come again, nor do indexes that have failed for good.
func ofJob(job *batchv1.Job, standing int) wish {
	if jobsuspension.IsSuspended(job) {
		return wish{none: true}
	}
	n, _ := podsOf(&job.Spec)
	if job.Spec.Completions != nil {
		gone := max(0, int(job.Status.Succeeded)-standing)
		n = min(n, int(*job.Spec.Completions)-gone-failedIndexes(job))
	}
	if least, err := strconv.Atoi(job.Spec.Template.Annotations[v1alpha1.MinAvailableAnnotation]); err == nil && least > 0 {
		n = min(n, least) // it is elastic: what its pods say counts, and the PodGroup says the same
	}
	return wish{min: max(0, n)}
}

// failedIndexes returns how many indexes of a Job with spec.backoffLimitPerIndex have failed for good. The Job's status
// lists them as numbers and ranges, such as 1,3-5.
func failedIndexes(job *batchv1.Job) int {
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

// group is what is known of a group of a LeaderWorkerSet.
type group struct {
	// size is the number of its pods; 0 for the size in the spec of the LeaderWorkerSet.
	size int
	// leader and workers: they are in the gang.
	leader, workers bool
}

// ofGroup returns the wish for a group of a LeaderWorkerSet.
func ofGroup(lws *leaderWorkerSet, g group) wish {
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
		return wishOf([]part{leader, workers})
	}
	return wish{min: leader.count + workers.count}
}

// leaderTemplate returns the template of the leaders.
func (lws *leaderWorkerSet) leaderTemplate() *v1.PodTemplateSpec {
	if template := lws.Spec.LeaderWorkerTemplate.LeaderTemplate; template != nil {
		return template
	}
	return &lws.Spec.LeaderWorkerTemplate.WorkerTemplate
}
