package app

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestUnserved: what gates that are on need and the API server does not serve is found, and stops the start if the user
// switched the gate on.
func TestUnserved(t *testing.T) {
	claims := []string{"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"}
	for sentence, c := range map[string]struct {
		serves map[string][]string
		gates  string
		want   []string
		err    string
	}{
		"all that is on by default is served": {serves: map[string][]string{"resource.k8s.io/v1": append(claims, "devicetaintrules")}},
		"a group version is not served":       {serves: map[string][]string{"v1": {"pods"}}, want: append(claims, "devicetaintrules")},
		"one kind of a group version is not":  {serves: map[string][]string{"resource.k8s.io/v1": claims}, want: []string{"devicetaintrules"}},
		"its gate is off":                     {serves: map[string][]string{"resource.k8s.io/v1": claims}, gates: "DRADeviceTaintRules=false"},
		"the user switched it on": {serves: map[string][]string{"resource.k8s.io/v1": claims}, gates: "DRADeviceTaintRules=true",
			want: []string{"devicetaintrules"}, err: "feature gate DRADeviceTaintRules is on, and the API server does not serve resource.k8s.io/v1 devicetaintrules"},
		"native gangs": {serves: map[string][]string{"resource.k8s.io/v1": append(claims, "devicetaintrules"), "scheduling.k8s.io/v1": {"priorityclasses"}},
			gates: "GenericWorkload=true", want: []string{"podgroups"},
			err: "leave the gate out, or start the API server (1.37 or newer), too, with --feature-gates=GenericWorkload=true and --runtime-config=scheduling.k8s.io/v1beta1=true"},
		"native gangs that are served": {gates: "GenericWorkload=true", serves: map[string][]string{
			"resource.k8s.io/v1": append(claims, "devicetaintrules"), "scheduling.k8s.io/v1beta1": {"podgroups"}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			client := fake.NewClientset()
			for groupVersion, names := range c.serves {
				list := &metav1.APIResourceList{GroupVersion: groupVersion}
				for _, name := range names {
					list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
				}
				client.Resources = append(client.Resources, list)
			}
			on := utilfeature.DefaultMutableFeatureGate.DeepCopyAndReset()
			must.Succeed(t, on.Set(c.gates))
			missing, err := unserved(client.Discovery(), on)
			must.Succeed(t, err)
			var got []string
			for _, k := range missing {
				got = append(got, k.resource.Resource)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("not served (-want +got):\n%s", diff)
			}
			if err := report(t.Context(), missing, on); (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want one with %q", err, c.err)
			}
		})
	}
}

// TestEmptyInformersSync: the informers of kinds that are not served ask nothing, and are in sync.
func TestEmptyInformersSync(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		t.Errorf("the API server was asked to %s %s", action.GetVerb(), action.GetResource())
		return false, nil, nil
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	empty(factory, gatedKinds)
	resources := factory.Resource().V1()
	for _, informer := range []interface{ HasSynced() bool }{
		resources.DeviceClasses().Informer(), resources.ResourceClaims().Informer(), resources.ResourceSlices().Informer(),
		resources.ResourceClaimTemplates().Informer(), resources.DeviceTaintRules().Informer(), factory.Scheduling().V1beta1().PodGroups().Informer(),
		factory.Scheduling().V1alpha3().CompositePodGroups().Informer(),
	} {
		if informer.HasSynced() {
			t.Fatal("an informer that does not run is in sync")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Errorf("%s is not in sync", kind)
		}
	}
}

// TestFeaturesThatAreOff: features that came after the emulated version are named.
func TestFeaturesThatAreOff(t *testing.T) {
	for text, want := range map[string]string{"1.36": "DRADeviceTaintRules", "1.35": "DRAExtendedResource"} {
		on := utilfeature.DefaultMutableFeatureGate.DeepCopyAndReset()
		must.Succeed(t, on.SetEmulationVersion(version.MustParse(text)))
		if names := off(on); !slices.Contains(names, want) || !slices.Contains(names, "native PodGroups") || slices.Contains(names, "DRAPrioritizedList") {
			t.Errorf("off at %s: %q", text, names)
		}
	}
}
