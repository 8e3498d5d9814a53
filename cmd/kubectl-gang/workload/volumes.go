package workload

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/overlay"
)

// claimVolumes adds what a StatefulSet makes of its volumeClaimTemplates for a pod: a claim by each, which the pod mounts. One that is there
// is kept, as it would be.
func (r *Reader) claimVolumes(w *Workload, pod *v1.Pod, templates []v1.PersistentVolumeClaim) error {
	for i := range templates {
		claim := templates[i].DeepCopy()
		volume := v1.Volume{Name: claim.Name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}}
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
		claim.Name, claim.Namespace, claim.UID = claim.Name+"-"+pod.Name, pod.Namespace, uuid.NewUUID()
		claim.CreationTimestamp = metav1.NewTime(r.Now)
		volume.PersistentVolumeClaim.ClaimName = claim.Name
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
		exists, err := r.Cluster.Exists(v1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), claim.Namespace, claim.Name)
		if err != nil {
			return err
		}
		if exists {
			continue
		}
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(claim)
		if err != nil {
			return fmt.Errorf("PersistentVolumeClaim %q: %w", claim.Name, err)
		}
		w.Objects = append(w.Objects, &unstructured.Unstructured{Object: o})
	}
	return nil
}

// provision gives the claims of the manifests the class that they would get, and those that are provisioned at once their volumes: it is
// not known which nodes would not reach them.
func (r *Reader) provision(w *Workload) error {
	var classes *storagev1.StorageClassList
	var volumes []*unstructured.Unstructured
	for _, u := range w.Objects {
		if u.GetKind() != "PersistentVolumeClaim" || u.GroupVersionKind().Group != "" {
			continue
		}
		if classes == nil {
			classes = &storagev1.StorageClassList{}
			if err := r.Cluster.Read("/apis/storage.k8s.io/v1/storageclasses", classes); err != nil {
				return err
			}
		}
		claim := &v1.PersistentVolumeClaim{}
		if err := convert(u, claim); err != nil {
			return fmt.Errorf("PersistentVolumeClaim %q: %w", u.GetName(), err)
		}
		class := classOf(claim, classes.Items)
		if class == nil || claim.Spec.VolumeName != "" {
			continue
		}
		claim.Spec.StorageClassName = &class.Name
		waits := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
		if !waits && class.Provisioner != storagehelpers.NotSupportedProvisioner {
			volume, err := runtime.DefaultUnstructuredConverter.ToUnstructured(overlay.Provisioned(claim, class.Provisioner))
			if err != nil {
				return fmt.Errorf("PersistentVolumeClaim %q: %w", u.GetName(), err)
			}
			volumes = append(volumes, &unstructured.Unstructured{Object: volume})
		}
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(claim)
		if err != nil {
			return fmt.Errorf("PersistentVolumeClaim %q: %w", u.GetName(), err)
		}
		u.Object = o
	}
	w.Objects = append(w.Objects, volumes...)
	return nil
}

// classOf is the class of a claim: the one it names, or where it names none the newest that is one by default. nil is none.
func classOf(claim *v1.PersistentVolumeClaim, classes []storagev1.StorageClass) *storagev1.StorageClass {
	if claim.Spec.StorageClassName != nil || storagehelpers.PersistentVolumeClaimHasClass(claim) {
		name := storagehelpers.GetPersistentVolumeClaimClass(claim)
		for i := range classes {
			if name != "" && classes[i].Name == name {
				return &classes[i]
			}
		}
		return nil
	}
	var newest *storagev1.StorageClass
	for i := range classes {
		class := &classes[i]
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" && (newest == nil || newest.CreationTimestamp.Before(&class.CreationTimestamp)) {
			newest = class
		}
	}
	return newest
}
