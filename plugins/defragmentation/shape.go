package defragmentation

import (
	"fmt"
	"math"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// nameOf returns a shape in words: 2 more gangs of 8 x 8 nvidia.com/gpu in one topology.example.com/rack.
func nameOf(shape *v1alpha1.GangShape) string {
	text := fmt.Sprintf("%d x %s", shape.Members, resource.FromList(shape.Requests))
	if shape.Topology != "" {
		text += " in one " + shape.Topology
	}
	if shape.More > 1 {
		return fmt.Sprintf("%d more gangs of %s", shape.More, text)
	}
	return "one more gang of " + text
}

// demandOfShape returns the demand of gangs that may come. They tolerate taints that have the name of what they ask
// for. Their pods exist only in the what-if, and have the highest priority: whether pods may be moved for them is up to
// the user who asks for the plan.
func demandOfShape(fw framework.Framework, p *v1alpha1.DefragmentationPlan) *demand {
	shape := p.Spec.Goal.Shape
	d := demandOfGangs(fw, p.UID, int(max(shape.More, 1)), int(shape.Members), shape.Requests, shape.Topology)
	d.name, d.goal, d.more = nameOf(shape), p.Spec.Goal, true
	return d
}

// demandOfGangs returns the demand of gangs that do not exist.
func demandOfGangs(fw framework.Framework, id types.UID, gangs, members int, requests v1.ResourceList,
	topology string) *demand {
	var tolerations []v1.Toleration // as the admission plugin ExtendedResourceToleration writes them
	for _, name := range sortedKeys(requests) {
		tolerations = append(tolerations, v1.Toleration{Key: string(name), Operator: v1.TolerationOpExists})
	}
	a := &gangstate.Attempt{Group: "supposed/" + string(id), Strict: true}
	for g := range gangs {
		need := gangstate.Need{Key: gangspec.Key{Name: fmt.Sprintf("supposed-%d", g)}, Min: members,
			Spec: gangspec.Spec{Min: members, RequiredTopology: topology}}
		for i := range members {
			need.Pending = append(need.Pending, &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("supposed-%d-%d", g,
						i), UID: types.UID(fmt.Sprintf("%s/%d/%d", id, g, i)),
				},
				Spec: v1.PodSpec{
					SchedulerName: fw.ProfileName(), Priority: new(int32(math.MaxInt32)), Tolerations: tolerations,
					Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: requests}}},
				},
			})
		}
		a.Gangs = append(a.Gangs, need)
	}
	a.Leader = a.Gangs[0].Pending[0].UID
	return &demand{attempt: a, fw: fw, priority: math.MaxInt32}
}

// profile returns the profile that is to place a shape; without one, the reason.
func (pl *Defragmentation) profile(p *v1alpha1.DefragmentationPlan) (framework.Framework, string) {
	if fw := pl.scheduler.Profiles[p.Spec.SchedulerName]; fw != nil {
		return fw, ""
	}
	return nil, fmt.Sprintf("no profile has spec.schedulerName %q: there are %s", p.Spec.SchedulerName,
		strings.Join(sortedKeys(pl.scheduler.Profiles), ", "))
}
