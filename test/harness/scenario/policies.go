package scenario

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// policyProbe names a policy, its binding, and the ConfigMap that the policy forbids.
	policyProbe = "lockstep-scenario-policy-probe"
	// policyInterval is how often the API server is asked whether it applies a policy; it looks once a second.
	policyInterval = 100 * time.Millisecond
)

// waitForPolicies waits until the API server applies the policies whose bindings were created before. It learns of them
// in the order in which they were made, so it applies them when it applies one that is made now.
func (r *run) waitForPolicies(ctx context.Context) (err error) {
	api := r.site.cluster.Clientset()
	policies := api.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := api.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	named := metav1.ObjectMeta{Name: policyProbe}
	if _, err := policies.Create(ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: named,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				ResourceNames: []string{policyProbe},
				RuleWithOperations: admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}}},
			}}},
			Validations: []admissionv1.Validation{{Expression: "false"}},
		}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a policy that shows when policies apply: %w", err)
	}
	defer func() {
		if gone := policies.Delete(ctx, policyProbe, metav1.DeleteOptions{}); gone != nil && err == nil {
			err = fmt.Errorf("deleting the policy that shows when policies apply: %w", gone)
		}
	}()
	if _, err := bindings.Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policyProbe,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("binding the policy that shows when policies apply: %w", err)
	}
	defer func() {
		if gone := bindings.Delete(ctx, policyProbe, metav1.DeleteOptions{}); gone != nil && err == nil {
			err = fmt.Errorf("unbinding the policy that shows when policies apply: %w", gone)
		}
	}()
	err = wait.PollUntilContextTimeout(ctx, policyInterval, defaultWithin, true, func(ctx context.Context) (bool, error) {
		_, err := api.CoreV1().ConfigMaps(v1.NamespaceDefault).Create(ctx, &v1.ConfigMap{ObjectMeta: named},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("waiting until the API server applies the policies: %w", err)
	}
	return nil
}
