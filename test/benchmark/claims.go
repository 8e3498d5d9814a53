package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/test/helpers/dra"
)

// claims compares gangs on lockstep-scheduler with as many plain pods on the stock scheduler where each pod claims a
// device, on nodes whose devices are known from ResourceSlices.
type claims struct {
	nodes, gangs, size int
}

func (b claims) name() string {
	return fmt.Sprintf("Claims/nodes=%d/gangs=%dx%d", b.nodes, b.gangs, b.size)
}

func (b claims) run(ctx context.Context, f *fixture, r *report) (err error) {
	if err := f.setNodes(ctx, b.nodes); err != nil {
		return err
	}
	if err := f.setDevices(ctx); err != nil {
		return err
	}
	t := r.table(b.name(), []goal{{unit: "pods/s", ratio: true, bound: 0.8}}, "scheduler=stock", "scheduler=ours")
	err = f.takeTurns(t, func(column int, label string) error {
		k := []kind{stock, ours}[column]
		w := workload{scheduler: k.schedulerName, prefix: "train", gangs: b.gangs, size: b.size, claims: true}
		if k == ours {
			w.min = b.size
		}
		if err := f.createClaims(ctx, w); err != nil {
			return err
		}
		if err := f.raceOnce(ctx, r, t, column, k, label, w); err != nil {
			return err
		}
		return f.clearClaims(ctx, r, w)
	})
	if err != nil {
		return err
	}
	return f.dropDevices(ctx)
}

// setDevices gives each node as many devices as it has GPUs.
func (f *fixture) setDevices(ctx context.Context) error {
	if _, err := f.client.ResourceV1().DeviceClasses().Create(ctx, dra.Class(), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the device class: %w", err)
	}
	nodes, err := f.nodeNames(ctx)
	if err != nil {
		return err
	}
	return each(ctx, len(nodes), func(ctx context.Context, i int) error {
		if _, err := f.client.ResourceV1().ResourceSlices().Create(ctx, dra.Slice(nodes[i], gpusOnNode), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating a ResourceSlice: %w", err)
		}
		return nil
	})
}

func (f *fixture) dropDevices(ctx context.Context) error {
	if err := f.client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("deleting ResourceSlices: %w", err)
	}
	if err := f.client.ResourceV1().DeviceClasses().Delete(ctx, dra.Driver, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting the device class: %w", err)
	}
	return nil
}

// createClaims makes a claim for each pod, named like the pod: kube-controller-manager does that for a template.
func (f *fixture) createClaims(ctx context.Context, w workload) error {
	return each(ctx, w.pods(), func(ctx context.Context, i int) error {
		claim := dra.Claim(w.at(i).Name, 1)
		claim.Namespace, claim.UID = namespace, ""
		f.wrote.Add(1)
		if _, err := f.client.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating a claim: %w", err)
		}
		return nil
	})
}

// clearClaims deletes all claims, and reports if two had the same device.
func (f *fixture) clearClaims(ctx context.Context, r *report, w workload) error {
	list, err := f.client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing claims: %w", err)
	}
	if twice, allocated := allocations(list.Items); twice > 0 || allocated != w.pods() {
		r.wrong("%s: %d devices are allocated to %d pods, %d of them twice", w.scheduler, allocated, w.pods(), twice)
	}
	return each(ctx, len(list.Items), func(ctx context.Context, i int) error {
		api, name := f.client.ResourceV1().ResourceClaims(namespace), list.Items[i].Name
		f.wrote.Add(2)
		// The finalizer is for kube-controller-manager, which does not run here.
		if _, err := api.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("freeing a claim: %w", err)
		}
		if err := api.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting a claim: %w", err)
		}
		return nil
	})
}

// allocations counts the devices that claims have, and those that several claims have.
func allocations(all []resourceapi.ResourceClaim) (twice, allocated int) {
	type device struct{ driver, pool, name string }
	seen := map[device]bool{}
	for i := range all {
		if all[i].Status.Allocation == nil {
			continue
		}
		for _, result := range all[i].Status.Allocation.Devices.Results {
			d := device{result.Driver, result.Pool, result.Device}
			if seen[d] {
				twice++
			}
			seen[d] = true
			allocated++
		}
	}
	return twice, allocated
}

// claim makes a pod claim a device in place of a GPU.
func claim(pod *v1.Pod) {
	pod.Spec.Containers[0].Resources.Limits = nil
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(pod.Name)}}
}
