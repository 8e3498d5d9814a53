package gangstate

import "github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"

// The keys that pods of these tests carry.
const (
	minKey      = v1alpha1.MinAvailableAnnotation
	totalKey    = v1alpha1.TotalNumberAnnotation
	waitKey     = v1alpha1.WaitingTimeAnnotation
	modeKey     = v1alpha1.ModeAnnotation
	groupsKey   = v1alpha1.GroupsAnnotation
	policyKey   = v1alpha1.MatchPolicyAnnotation
	rolesKey    = v1alpha1.MinByRoleAnnotation
	requiredKey = v1alpha1.RequiredTopologyAnnotation
	preferKey   = v1alpha1.PreferredTopologyAnnotation
	minLabel    = v1alpha1.PodGroupMinAvailableLabel
)

type values = map[string]string
