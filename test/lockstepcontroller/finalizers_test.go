package lockstepcontroller_test

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// nonsense are specs that no schema allows today; objects of older schemas may have them.
func nonsense() map[string][]map[string]any {
	long, huge := strings.Repeat("x", 254), strings.Repeat("y", 200_000)
	names := []any{"", "a/b", "..", ".", "a%2fb", "A b", "\x1b[31m", "päd", long, huge}
	specs := map[string][]map[string]any{"PodMigration": {{}}, "DefragmentationPlan": {{}, {"goal": map[string]any{}}}}
	for _, name := range names {
		for _, field := range []string{"podName", "podUID", "podGroup", "sourceNode", "targetNode", "reservation"} {
			spec := map[string]any{"podName": "p", "podUID": "u", "sourceNode": "node-0", "targetNode": "node-1"}
			spec[field] = name
			specs["PodMigration"] = append(specs["PodMigration"], spec)
		}
		for _, goal := range []map[string]any{
			{"podGroup": name}, {"pod": map[string]any{"name": name, "namespace": name, "uid": "u"}}, {"empty": map[string]any{"unit": name, "names": []any{name}}},
			{"shape": map[string]any{"members": int64(2), "topology": name, "requests": map[string]any{"cpu": "1"}}},
		} {
			specs["DefragmentationPlan"] = append(specs["DefragmentationPlan"], map[string]any{"goal": goal})
		}
	}
	return specs
}

// TestFinalizersOfNonsense: objects of every kind that gets a finalizer of ours lose it when they are deleted, whatever
// their spec says, and with a status that the API server refuses; their namespace goes.
func TestFinalizersOfNonsense(t *testing.T) {
	t.Parallel()
	c := localcluster.Run(t, localcluster.Options{Nodes: nodes, Manifests: []string{manifest(t, "rbac"), manifest(t, "crds")}})
	run(t, c, "controller")
	n := newNamespace(t, c, "nonsense")
	config := c.RESTConfig()
	config.QPS = -1 // there are many objects
	admin := typedClient(t, config)
	resources := map[string]string{"PodMigration": "podmigrations", "DefragmentationPlan": "defragmentationplans"}
	for _, name := range resources {
		loosen(t, admin, name+"."+v1alpha1.GroupName)
	}
	specs := nonsense()
	var objects []*unstructured.Unstructured
	for kind, list := range specs {
		for i, spec := range list {
			object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
			object.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
			object.SetName(fmt.Sprintf("%s-%d", strings.ToLower(kind), i))
			if kind == "PodMigration" {
				object.SetNamespace(n.name)
			} else if i == 0 {
				object.SetName(strings.Repeat("long-", 30) + "name")
			}
			await.NoError(t, object.GetName()+" is created", func() error { // once the loose schema is in force
				return client.IgnoreAlreadyExists(admin.Create(t.Context(), object.DeepCopy()))
			})
			objects = append(objects, object)
		}
	}
	await.NoError(t, "all have been seen", func() error {
		for _, object := range objects {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
			if phase, _, err := unstructured.NestedString(object.Object, "status", "phase"); err != nil || phase == "" {
				return fmt.Errorf("%s %s has no phase (%w)", object.GetKind(), object.GetName(), err)
			}
		}
		return nil
	})
	refuseStatus(t, admin)
	stuck := objects[:0:0]
	for kind := range resources { // these have a finalizer, and their status cannot be written
		object := &unstructured.Unstructured{Object: map[string]any{"spec": specs[kind][0]}}
		object.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
		object.SetName("refused-" + strings.ToLower(kind))
		if kind == "PodMigration" {
			object.SetNamespace(n.name)
		}
		await.NoError(t, object.GetName()+" is created", func() error { return client.IgnoreAlreadyExists(admin.Create(t.Context(), object.DeepCopy())) })
		await.NoError(t, object.GetName()+" has a finalizer", func() error {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || len(object.GetFinalizers()) > 0 {
				return err
			}
			return fmt.Errorf("%s has no finalizer", object.GetName())
		})
		stuck = append(stuck, object)
	}
	objects = append(objects, stuck...)
	for _, object := range objects {
		if object.GetNamespace() == "" {
			if err := admin.Delete(t.Context(), object); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Clientset().CoreV1().Namespaces().Delete(t.Context(), n.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "all are gone", func() error {
		for _, object := range objects {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s %s is still there (%w): finalizers %v", object.GetKind(), object.GetName(), err, object.GetFinalizers())
			}
		}
		_, err := c.Clientset().CoreV1().Namespaces().Get(t.Context(), n.name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the namespace is still there (%w)", err)
		}
		return nil
	})
}

// loosen has the API server take any spec of a kind.
func loosen(t *testing.T, admin client.Client, name string) {
	t.Helper()
	await.NoError(t, name+" takes any spec", func() error {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, crd); err != nil {
			return err
		}
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		if err != nil {
			return err
		}
		for _, version := range versions {
			root, _, err := unstructured.NestedMap(version.(map[string]any), "schema", "openAPIV3Schema")
			if err != nil {
				return err
			}
			delete(root, "x-kubernetes-validations")
			root["properties"].(map[string]any)["spec"] = map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
			if err := unstructured.SetNestedMap(version.(map[string]any), root, "schema", "openAPIV3Schema"); err != nil {
				return err
			}
		}
		if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
			return err
		}
		return admin.Update(t.Context(), crd)
	})
}

// refuseStatus has the API server refuse every status of what we put finalizers on, and waits until it does.
func refuseStatus(t *testing.T, admin client.Client) {
	t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-status"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule: admissionv1.Rule{
				APIGroups: []string{v1alpha1.GroupName}, APIVersions: []string{"*"},
				Resources: []string{"podmigrations/status", "defragmentationplans/status"},
			},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "false", Message: "no status is taken"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-status"}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "no-status", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	probe := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "defragmentationplan-1"}}
	for _, object := range []client.Object{policy, binding} {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	await.NoError(t, "the status is refused", func() error {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(probe), probe); err != nil {
			return err
		}
		probe.Status.Goal += "."
		if err := admin.Status().Update(t.Context(), probe); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("the status is not refused: %w", err)
		}
		return nil
	})
}
