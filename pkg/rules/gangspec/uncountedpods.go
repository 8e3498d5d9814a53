package gangspec

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// UncountedPods are the pods without a node that do not count as members for now, each by the first of the reasons
// below.
type UncountedPods struct {
	// gated have scheduling gates, claimless lack ResourceClaims from their template, and impossible ask for what no pod
	// can have: fault is what is wrong with the first of them, and first its name.
	gated, claimless, impossible int
	first                        string
	fault                        *resource.Fault
}

// Add counts a pod without a node, and reports whether it does not count as a member for now. fault is what is wrong
// with what it asks for; nil for nothing.
func (a *UncountedPods) Add(pod *v1.Pod, fault *resource.Fault) bool {
	switch {
	case len(pod.Spec.SchedulingGates) > 0:
		a.gated++
	case lacksClaims(pod):
		a.claimless++
	case fault != nil:
		if a.impossible++; a.impossible == 1 {
			a.first, a.fault = pod.Name, fault
		}
	default:
		return false
	}
	return true
}

// IsUncounted reports whether a pod without a node does not count as a member for now.
func IsUncounted(pod *v1.Pod) bool { return new(UncountedPods).Add(pod, resource.CheckPod(pod)) }

// lacksClaims reports whether a pod waits for ResourceClaims that are made for it from a template:
// kube-controller-manager has not named all of them in its status. It is not known yet which
// devices such a pod asks for.
func lacksClaims(pod *v1.Pod) bool {
	for i := range pod.Spec.ResourceClaims {
		claim := &pod.Spec.ResourceClaims[i]
		made := func(status v1.PodResourceClaimStatus) bool { return status.Name == claim.Name }
		if claim.ResourceClaimTemplateName != nil && !slices.ContainsFunc(pod.Status.ResourceClaimStatuses, made) {
			return true
		}
	}
	return false
}

// N is how many they are.
func (a *UncountedPods) N() int { return a.gated + a.claimless + a.impossible }

// Texts lists them, for [TextIncomplete].
func (a *UncountedPods) Texts() (texts []string) {
	if a.gated > 0 {
		texts = append(texts, fmt.Sprintf("%d with scheduling gates", a.gated))
	}
	if a.claimless > 0 {
		texts = append(texts, fmt.Sprintf("%d without ResourceClaims from their template", a.claimless))
	}
	if a.impossible > 0 {
		texts = append(texts, fmt.Sprintf("%d with impossible requests: pod %s: %s", a.impossible, a.first, a.fault))
	}
	return texts
}
