package podgroup

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstatus"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// EventMemberRefused: the kubelet of its node did not take a member. It is on the PodGroup.
const EventMemberRefused = "MemberRefused"

// refusedByKubelet returns the event that kubelets have refused members; nil if so many were told, or no more have
// failed than the status says.
func refusedByKubelet(pg *coscheduling.PodGroup, f gangstatus.StatusFacts, told int) *status.Event {
	text := gangstate.TextRefusedByKubelet(f.RefusedByKubelet)
	if len(f.RefusedByKubelet) <= told || f.Failed <= int(pg.Status.Failed) {
		return nil
	}
	return &status.Event{
		On:   status.PodGroupReference(coscheduling.Kind.GroupVersion().String(), pg.Namespace, pg.Name, pg.UID),
		Type: v1.EventTypeWarning, Reason: EventMemberRefused, Action: "Watching",
		Note: fmt.Sprintf("gang %q: %s", f.Key, text),
	}
}
