package queuestatus

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

// jobs are the waiting pods by what starts together, as the scheduler offers them: a pod, or what gangs lack of their
// minimums.
type jobs struct {
	byName map[string]*job
	// of has the names of the jobs of pods, also of those beyond what has to start.
	of map[types.UID]string
}

type job struct {
	pods []*v1.Pod
	// parts: they may be placed one by one. begun: part of the minimum has its place.
	parts, begun bool
}

func (c *cluster) jobs() jobs {
	all := jobs{byName: map[string]*job{}, of: map[types.UID]string{}}
	pods := map[member][]*v1.Pod{}
	for _, pod := range c.pods {
		switch as := memberOf(pod); {
		case as.scheduler != "" && c.schedulers[as.scheduler]:
			pods[as] = append(pods[as], pod)
		case c.waits(pod):
			all.add(string(pod.UID), job{}, []*v1.Pod{pod}, 1)
		}
	}
	for as := range pods {
		if slices.ContainsFunc(pods[as], c.waits) {
			c.addGang(all, as, pods[as])
		}
	}
	return all
}

// addGang adds what waits of a gang: what it lacks of its minimum, with the gangs that start together with it, or else
// its pods one by one.
func (c *cluster) addGang(all jobs, as member, pods []*v1.Pod) {
	object := c.groups[as.gang].Object()
	is := gangstate.Observe(as.gang, object, pods, gangstate.RecordedHistory(object))
	waiting := slices.DeleteFunc(is.Pods, func(pod *v1.Pod) bool { return !c.waits(pod) })
	lacks := is.Stage.Min - is.Bound.N
	if lacks <= 0 {
		for _, pod := range waiting {
			all.add(string(pod.UID), job{}, []*v1.Pod{pod}, 1)
		}
		return
	}
	first := as.gang.In(as.scheduler)
	for _, other := range is.Spec.Groups {
		first = min(first, other.In(as.scheduler))
	}
	all.add(first, job{parts: is.Spec.Mode == gangspec.NonStrict, begun: is.Bound.N > 0}, waiting, lacks)
}

// add adds pods that wait to a job, of which so many have to start.
func (all jobs) add(name string, as job, waiting []*v1.Pod, start int) {
	if known := all.byName[name]; known != nil {
		known.parts, known.begun = known.parts && as.parts, known.begun || as.begun
	} else {
		all.byName[name] = &as
	}
	all.byName[name].pods = append(all.byName[name].pods, waiting[:min(start, len(waiting))]...)
	for _, pod := range waiting {
		all.of[pod.UID] = name
	}
}

// waits reports whether a pod waits for a node, and asks for something meanwhile.
func (c *cluster) waits(pod *v1.Pod) bool {
	return c.counts(pod) && pod.Spec.NodeName == "" && demandOf(pod) == queueing.Full
}

// offer makes them wait in the book, in which their pods are counted: those that are too large for their queue have no
// share there.
func (all jobs) offer(book *queueing.Book) {
	for _, name := range slices.Sorted(maps.Keys(all.byName)) {
		j := all.byName[name]
		offered := queueing.Job{Name: name, Begun: j.begun}
		var asked []queueing.Usage
		for _, pod := range j.pods {
			if usage, counted := book.Counted(string(pod.UID)); counted {
				offered.Pods, asked = append(offered.Pods, string(pod.UID)), append(asked, usage)
			}
		}
		if len(asked) == 0 {
			continue
		}
		offered.Pod, offered.Queue, offered.Options = offered.Pods[0], asked[0].Queue, queueing.Options(asked)
		if j.parts && len(asked) > 1 {
			offered.Parts = queueing.Options(asked[:1])
		}
		book.Offer(offered, queueing.Moment{})
	}
}
