package gangstate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// Texts of what gangs wait for, for users. The scheduler writes them to pods and PodGroups, the
// controller to PodGroups that no scheduler has written to.

// TextEvicted returns when a gang was evicted as a whole, and for whom if that is known.
func TextEvicted(key gangspec.Key, record evictionrecord.Record) string {
	text := fmt.Sprintf("gang %q was evicted at %s", key, record.At.UTC().Format(time.RFC3339))
	if record.For != "" {
		text += " for " + record.For
	}
	return text
}

// TextJobFailed says that a Job has failed; empty if it has not.
func TextJobFailed(job *batchv1.Job) string {
	c := objectstate.JobCondition(job, batchv1.JobFailed, batchv1.JobFailureTarget)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("Job %q has failed (%s), and makes no more pods", job.Name, c.Reason)
}

// TextUndefined is for a gang whose PodGroup gives it no minimum; madeFor is the owner for which that was made, empty
// if a user made it.
func TextUndefined(key gangspec.Key, madeFor types.UID) string {
	if madeFor != "" {
		return fmt.Sprintf("gang %q has no minimum: lockstep-controller writes it when the owner has pods and is not "+
			"suspended; if it has, see whether lockstep-controller runs", key)
	}
	return fmt.Sprintf("gang %q has no minimum: its PodGroup states none that can be used", key)
}

// textStaleOwner is for members whose owner has only its name in common with the one for which the gang's PodGroup was
// made.
func textStaleOwner(key gangspec.Key, pods int) string {
	return fmt.Sprintf("gang %q: %d members are of another owner than its PodGroup, "+
		"which lockstep-controller brings up to date: see whether that runs", key, pods)
}

// TextRefused is for a gang whose PodGroup asks for what is not supported.
func TextRefused(key gangspec.Key, why string) string {
	return fmt.Sprintf("gang %q is not scheduled: %s", key, why)
}

// TextIncomplete is for a gang that has fewer members than its minimum, which may be that of a stage:
// [TextStage]. aside lists, each with a number, pods that do not count as members for now.
func TextIncomplete(key gangspec.Key, have, minimum int, stage string, aside ...string) string {
	text := fmt.Sprintf("gang %q has %d of %d members%s", key, have, minimum, stage)
	if len(aside) > 0 {
		text += " (and " + strings.Join(aside, "; ") + ")"
	}
	return text
}

// mostRoles is how many roles a text names.
const mostRoles = 8

// TextLacks is for a gang that has enough members, but too few of some roles. It names the roles that they have if one
// of these may be a misspelling.
func TextLacks(key gangspec.Key, spec *gangspec.Spec, have gangspec.Count) string {
	missing := have.Lacks(spec)
	roles := slices.Sorted(maps.Keys(missing))
	named := roles[:min(mostRoles, len(roles))]
	parts := make([]string, len(named))
	for i, role := range named {
		parts[i] = fmt.Sprintf("%d more of role %s", missing[role], role)
	}
	text := fmt.Sprintf("gang %q lacks %s", key, strings.Join(parts, ", "))
	if rest := len(roles) - len(named); rest > 0 {
		text += fmt.Sprintf(" and members of %d more roles", rest)
	}
	if present := slices.Sorted(maps.Keys(have.Roles)); misspelled(named, present, spec.MinByRole) {
		text += "; members have the roles " + words.FirstOf(mostRoles, present)
	}
	return text
}

// misspelled reports whether one of the first roles that are present and have no minimum differs from a missing one in
// case only, or by one letter.
func misspelled(missing, present []string, minByRole map[string]int) bool {
	others := slices.DeleteFunc(slices.Clone(present), func(role string) bool { return minByRole[role] > 0 })
	for _, other := range others[:min(mostRoles, len(others))] {
		if slices.ContainsFunc(missing, func(role string) bool { return keys.Distance(role, other) <= 1 }) {
			return true
		}
	}
	return false
}

// TextAwaiting is for a gang that has all members that it needs, while nothing is known of where
// they could go.
func TextAwaiting(key gangspec.Key, minimum int) string {
	return fmt.Sprintf("gang %q has its minimum of %d members and waits for nodes", key, minimum)
}

// TextDefaultScheduler adds that members name the scheduler which pods have by default: it may be one of this project's
// profiles.
func TextDefaultScheduler(n int) string {
	return fmt.Sprintf("; %d of them name the scheduler %s, which knows no gangs unless it is Lockstep's: "+
		"set spec.schedulerName: lockstep-scheduler",
		n, v1.DefaultSchedulerName)
}

// textAwaitsGang is for a gang that starts with one that is not there, or does not name it.
func textAwaitsGang(key, other gangspec.Key) string {
	return fmt.Sprintf("gang %q waits for gang %q, listed in its groups annotation", key, other)
}

// textNoPods adds that the awaited gang has no pods, and which other gangs name the one that waits: one of them may be
// meant.
func textNoPods(naming []gangspec.Key) string {
	text := ", which has no pods"
	for _, other := range naming {
		text += fmt.Sprintf("; gang %q, which names it, is not listed there", other)
	}
	return text
}

// textTooMany is for a gang that would start with another one if there were not too many of them.
func textTooMany(key, other gangspec.Key) string {
	return fmt.Sprintf("gang %q waits for gang %q: more than %d gangs name each other, the most that start together; "+
		"name fewer in the groups annotation", key, other, keys.MaxGroups)
}

// textAwaitsGroup is for a gang that starts with one that lacks members.
func textAwaitsGroup(key gangspec.Key, lacks string) string {
	return fmt.Sprintf("gang %q waits for its group: %s", key, lacks)
}

// textNoNodes is for a gang that was to be placed while there are no nodes at all.
func textNoNodes(key gangspec.Key, minimum int) string {
	return fmt.Sprintf("gang %q: 0 of %d members fit: the cluster has no nodes", key, minimum)
}

// textPreemptionDelay is added for a gang that may not evict pods yet.
func textPreemptionDelay(delay time.Duration) string {
	return fmt.Sprintf("; it evicts no pods in the first %s, so that nodes can be added (%s)", delay,
		v1alpha1.PreemptionDelayAnnotation)
}

// textClaimTurn is for a member that waits for others with which it shares claims.
func textClaimTurn(claims []types.NamespacedName) string {
	names := make([]string, len(claims))
	for i, claim := range claims {
		names[i] = claim.String()
	}
	return fmt.Sprintf("waiting for another member to be reserved ResourceClaim %s", strings.Join(names, ", "))
}

// TextStage follows a number of members that a stage of the gang, from 1, needs; empty if the gang has no stages.
func TextStage(stage, stages int) string {
	if stages == 0 {
		return ""
	}
	return fmt.Sprintf(" for stage %d of %d", stage, stages)
}

// textLosesClaims is for pods from which the allocation of ResourceClaims is being taken back, for the aside
// of [TextIncomplete].
func textLosesClaims(pods int) string {
	return fmt.Sprintf("%d whose ResourceClaims are being deallocated", pods)
}

// textPlaceLost is for a gang whose round ended when a pod of its group lost the place that was held for it.
func textPlaceLost(key gangspec.Key, pod string) string {
	return fmt.Sprintf("gang %q: pod %s lost the place that was held for it, to a preemptor or by a plugin; "+
		"the gang is tried again", key, pod)
}
