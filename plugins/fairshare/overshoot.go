package fairshare

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// overshooting returns the running pods of jobs that are [share.Reclaim.Overshooting]. Pods that end, or are gone,
// count no longer. It costs a look at each counted pod, and a sort of the running jobs of queues that have more than
// they deserve.
func (d *Dispatcher) overshooting(c *share.Reclaim, gone map[types.UID]bool) map[types.UID]bool {
	defer d.lock()()
	type job struct {
		share.Job
		pods []types.UID
	}
	queues, starts := map[string]map[string]*job{}, starts{members: map[types.UID]start{}, jobs: map[string]string{}}
	for uid, counted := range d.usage.Pods() {
		usage, ok := d.book.Counted(string(uid))
		if !ok || !usage.Runs {
			continue
		}
		jobs, asked := queues[usage.Queue]
		if !asked && c.Excess(usage.Queue) > 1 {
			jobs = map[string]*job{}
		}
		queues[usage.Queue] = jobs
		pod := counted.Object
		if jobs == nil || pod.DeletionTimestamp != nil || gone[uid] {
			continue
		}
		start := starts.of(pod, d.gangs, d.clock.Now())
		if jobs[start.job] == nil {
			jobs[start.job] = &job{Job: share.Job{Name: start.job, Started: start.at, Amount: resource.Vector{}}}
		}
		j := jobs[start.job]
		if start.at.Before(j.Started) {
			j.Started = start.at
		}
		j.Amount.Add(usage.Amount, 1)
		j.pods = append(j.pods, uid)
	}
	overshooting := map[types.UID]bool{}
	for queue, jobs := range queues {
		var list []share.Job
		for _, j := range jobs {
			list = append(list, j.Job)
		}
		for name := range c.Overshooting(queue, list) {
			for _, uid := range jobs[name].pods {
				overshooting[uid] = true
			}
		}
	}
	return overshooting
}

// start is the job with which a pod started, and when that was.
type start struct {
	job string
	at  time.Time
}

// starts are those of the members of the gangs that were looked up.
type starts struct {
	members map[types.UID]start
	// jobs are the names of the jobs of these gangs, by their names.
	jobs map[string]string
}

// of returns the start of a running pod. The minimums of gangs that start together are one job, which started with the
// first of their pods; a member beyond the minimum is a job of its own, and so is a pod in no gang.
func (s *starts) of(pod *v1.Pod, gangs Gangs, now time.Time) start {
	key, member := gangs.GangOf(pod)
	if !member {
		return start{string(pod.UID), startOf(pod, now)}
	}
	profile := pod.Spec.SchedulerName
	gang := key.In(profile)
	if _, looked := s.jobs[gang]; !looked {
		s.jobs[gang] = gang
		if running := gangs.Running(profile, key); len(running) > 0 {
			s.jobs[gang] = s.add(profile, running, now)
		}
	}
	if known, ok := s.members[pod.UID]; ok {
		return known
	}
	return start{s.jobs[gang], startOf(pod, now)} // it is being bound, or no profile knows its gang
}

// add records the starts of the members of gangs of a profile that start together, and returns the name of their job:
// that of the first.
func (s *starts) add(profile string, running []gangstate.RunningGang, now time.Time) string {
	name, first := running[0].Key.In(profile), now
	var least []*v1.Pod
	for _, f := range running {
		s.jobs[f.Key.In(profile)] = name
		members := make([]*v1.Pod, len(f.Running))
		for i, placed := range f.Running {
			members[i] = placed.Pod
		}
		slices.SortStableFunc(members, func(a, b *v1.Pod) int { return startOf(a, now).Compare(startOf(b, now)) })
		for i, member := range members {
			at := startOf(member, now)
			if i >= f.Min {
				s.members[member.UID] = start{name + "/" + string(member.UID), at}
				continue
			}
			least = append(least, member)
			if at.Before(first) {
				first = at
			}
		}
	}
	for _, member := range least {
		s.members[member.UID] = start{name, first}
	}
	return name
}

// startOf returns when a pod was bound: now if it is being bound, zero if that is not known.
func startOf(pod *v1.Pod, now time.Time) time.Time {
	if pod.Spec.NodeName == "" {
		return now
	}
	return gangstate.BoundAt(pod)
}
