package explain

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
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

// strangers words which pods name a gang, but no scheduler of these profiles; empty where there are none.
func strangers(pods []*v1.Pod, profiles []string) string {
	counts := map[string]int{}
	for _, pod := range pods {
		if name := pod.Spec.SchedulerName; !slices.Contains(profiles, name) {
			counts[name]++
		}
	}
	if len(counts) == 0 {
		return ""
	}
	return fmt.Sprintf("Its pods name a scheduler that is no profile of the configuration: %s; set "+
		"spec.schedulerName to %s", strings.Join(Counted(counts), ", "), strings.Join(profiles, " or "))
}
