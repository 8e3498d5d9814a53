package view

import (
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// GangOf returns the gang of a pod as namespace/name, going by the pod alone; empty where it is in none.
func GangOf(pod *v1.Pod) string {
	if key, _, ok := gangstate.KeyOf(pod); ok {
		return key.String()
	}
	return ""
}
