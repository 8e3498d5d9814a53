package explain

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// missing returns what to look at where a gang has fewer pods than it starts with; empty where it has enough. there is
// how many it has, whichever scheduler they name; profiles are those that pods may name, empty where that is not known.
func missing(g *view.Gang, there int, profiles []string) string {
	if there >= g.Minimum || slices.Contains([]string{"bound", "ended", "evicted"}, stands(g)) {
		return ""
	}
	if g.Source == view.SourceOwner {
		return fmt.Sprintf("See the events of what owns it, and whether that makes %d pods", g.Minimum)
	}
	others := "the others"
	if there == 0 {
		others = "its pods"
	}
	return fmt.Sprintf("See whether %s are made in namespace %s, with %s%s", others, g.Namespace, joins(g), and(profiles))
}

// joins returns how a pod says that it is in a gang.
func joins(g *view.Gang) string {
	switch g.Source {
	case view.SourceNative:
		return "spec.schedulingGroup.podGroupName: " + g.Name
	case view.SourceAnnotation:
		return "the annotation " + v1alpha1.GangNameAnnotation + ": " + g.Name
	default:
		return "the label " + v1alpha1.PodGroupXLabel + ": " + g.Name
	}
}

// and returns which scheduler pods are to name.
func and(profiles []string) string {
	if len(profiles) == 0 {
		return ""
	}
	return " and spec.schedulerName: " + strings.Join(profiles, " or ")
}

// strangers returns the pods that name no scheduler of these profiles.
func strangers(pods []*v1.Pod, profiles []string) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool {
		return slices.Contains(profiles, pod.Spec.SchedulerName)
	})
}

// schedulersOf counts pods by the scheduler that they name.
func schedulersOf(pods []*v1.Pod) map[string]int {
	counts := map[string]int{}
	for _, pod := range pods {
		counts[pod.Spec.SchedulerName]++
	}
	return counts
}

// textStrangers says which schedulers these pods of a gang name that are no profiles; empty for no pods.
func textStrangers(pods []*v1.Pod, profiles []string) string {
	if len(pods) == 0 {
		return ""
	}
	return fmt.Sprintf("Its pods name a scheduler that is no profile of the configuration: %s; set "+
		"spec.schedulerName to %s", strings.Join(Counted(schedulersOf(pods)), ", "), strings.Join(profiles, " or "))
}

// textUnscheduled says that the pods of a gang which wait name no profile; empty where none waits.
func textUnscheduled(waiting []*v1.Pod, profiles []string) string {
	if len(waiting) == 0 {
		return ""
	}
	counts := schedulersOf(waiting)
	which := fmt.Sprintf("the scheduler %s, which is no profile", waiting[0].Spec.SchedulerName)
	if len(counts) > 1 {
		which = fmt.Sprintf("the schedulers %s, which are no profiles", strings.Join(Counted(counts), ", "))
	}
	return fmt.Sprintf("its %s name%s %s of lockstep-scheduler; write schedulerName: %s",
		words.Count(len(waiting), "pod"), singular(len(waiting)), which, strings.Join(profiles, " or "))
}
