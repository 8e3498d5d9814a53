package explain

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
)

// badKeys says which values of keys cannot be used, and which keys have no effect, on the PodGroup of a gang and on
// pods of it, each once. What depends on the scheduler's configuration is left out.
func badKeys(gang string, of *view.GangsIn, pods []*v1.Pod) (texts []string) {
	namespace, name, _ := strings.Cut(gang, "/")
	var groups gangspec.PodGroups
	for _, group := range of.PodGroups {
		groups.Read(group)
	}
	for _, group := range of.Natives {
		groups.Read(group)
	}
	object := groups.Object()
	tell := func(problems []gangspec.KeyProblem) {
		for _, problem := range problems {
			text := "Not used: " + problem.Key + " " + problem.Ignored
			if problem.Ignored == "" {
				text = "Not used: " + problem.Fault()
			}
			if problem.Key != v1alpha1.NetworkTopologySpecAnnotation && !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	if object != nil {
		tell(object.Ignored)
	}
	for _, pod := range pods {
		_, problems := gangspec.Parse(gangspec.Key{Namespace: namespace, Name: name}, object, pod, gangspec.Defaults{})
		tell(problems)
		tell(gangspec.IgnoredKeys(keys.Pod, pod))
	}
	return texts
}
