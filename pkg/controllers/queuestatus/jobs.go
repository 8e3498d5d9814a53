package queuestatus

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
	specs, bound, taken := map[member]gangstate.Spec{}, map[member]int{}, map[member]int{}
	var waiting []*v1.Pod
	for _, pod := range c.pods {
		switch {
		case !c.counts(pod):
		case pod.Spec.NodeName != "":
			bound[memberOf(pod)]++
		case demandOf(pod) == queueing.Full:
			waiting = append(waiting, pod)
		}
	}
	slices.SortFunc(waiting, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	for _, pod := range waiting {
		as, name := memberOf(pod), string(pod.UID)
		starts, found := true, job{}
		if as.scheduler != "" {
			spec, known := specs[as]
			if !known {
				spec, _ = gangstate.Parse(as.gang, c.groups[as.gang], pod, gangstate.Defaults{})
				specs[as] = spec
			}
			if lacks := spec.Min - bound[as]; lacks > 0 {
				first := as.gang.String()
				for _, other := range spec.Groups {
					first = min(first, other.String())
				}
				name, found = as.scheduler+"/"+first, job{parts: spec.Mode == gangstate.NonStrict, begun: bound[as] > 0}
				taken[as]++
				starts = taken[as] <= lacks
			}
		}
		all.of[pod.UID] = name
		if known := all.byName[name]; known == nil {
			all.byName[name] = &found
		} else {
			known.parts, known.begun = known.parts && found.parts, known.begun || found.begun
		}
		if starts {
			all.byName[name].pods = append(all.byName[name].pods, pod)
		}
	}
	return all
}

// offer makes them wait in the book, in which their pods are counted: those that are too large for their queue have no
// share there.
func (all jobs) offer(book *queueing.Book) {
	for _, name := range slices.Sorted(maps.Keys(all.byName)) {
		j := all.byName[name]
		offered := queueing.Job{Name: name, Pod: string(j.pods[0].UID), Begun: j.begun}
		var asked []queueing.Usage
		for _, pod := range j.pods {
			if usage, counted := book.Counted(string(pod.UID)); counted {
				offered.Pods, asked = append(offered.Pods, string(pod.UID)), append(asked, usage)
			}
		}
		if len(asked) == 0 {
			continue
		}
		offered.Queue, offered.Options = asked[0].Queue, queueing.Options(asked)
		if j.parts && len(asked) > 1 {
			offered.Parts = queueing.Options(asked[:1])
		}
		book.Offer(offered, queueing.Moment{})
	}
}
