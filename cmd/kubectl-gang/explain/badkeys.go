package explain

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
)

// badKeys says which values of keys cannot be used, and which keys have no effect, on the PodGroup of a gang and on
// pods of it, each once. What depends on the scheduler's configuration is left out.
func badKeys(gang string, of *view.GangsIn, pods []*v1.Pod) (texts []string) {
	namespace, name, _ := strings.Cut(gang, "/")
	var object *gangspec.PodGroupDescription
	switch {
	case len(of.PodGroups) > 0:
		object = gangspec.ReadPodGroup(of.PodGroups[0], &of.PodGroups[0].Spec)
	case len(of.Natives) > 0:
		object = gangspec.ReadNative(of.Natives[0])
	}
	told := sets.New[string]()
	tell := func(problems []gangspec.KeyProblem) {
		for _, problem := range problems {
			text := problem.Key + " " + problem.Ignored
			if problem.Ignored == "" {
				text = problem.Fault()
			}
			if problem.Key != v1alpha1.NetworkTopologySpecAnnotation && !told.Has(text) {
				told.Insert(text)
				texts = append(texts, "Not used: "+text)
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
