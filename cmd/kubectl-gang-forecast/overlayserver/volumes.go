package overlayserver

import (
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	storagehelpers "k8s.io/component-helpers/storage/volume"
)

var (
	volumesResource = v1.SchemeGroupVersion.WithResource("persistentvolumes")
	pvcsResource    = v1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	classesResource = storagev1.SchemeGroupVersion.WithResource("storageclasses")
)

// Provisioned returns the volume that a provisioner makes for a claim, and binds the claim to it. Every node reaches
// the volume.
func Provisioned(claim *v1.PersistentVolumeClaim, provisioner string) *v1.PersistentVolume {
	volume := &v1.PersistentVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(claim.UID)},
		Spec: v1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: provisioner,
				VolumeHandle: string(claim.UID)}},
		},
	}
	if claim.Spec.StorageClassName != nil {
		volume.Spec.StorageClassName = *claim.Spec.StorageClassName
	}
	Bind(claim, volume)
	return volume
}

// Bind makes a claim and a volume say that they are bound to each other.
func Bind(claim *v1.PersistentVolumeClaim, volume *v1.PersistentVolume) {
	volume.Spec.ClaimRef = &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace,
		Name: claim.Name, UID: claim.UID}
	volume.Status.Phase = v1.VolumeBound
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, storagehelpers.AnnBindCompleted, "yes")
	claim.Spec.VolumeName = volume.Name
	claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, AccessModes: claim.Spec.AccessModes,
		Capacity: volume.Spec.Capacity}
}

// bindVolumes does what volume controllers do once the scheduler has chosen a volume for a claim, or a node on which to
// provision one.
func (s *Server) bindVolumes(r *http.Request, at ref, written *object) error {
	switch at.GroupVersionResource {
	case volumesResource:
		volume := &v1.PersistentVolume{}
		if err := typed(written, volume); err != nil || volume.Spec.ClaimRef == nil {
			return err
		}
		claim := &v1.PersistentVolumeClaim{}
		claimAt := ref{pvcsResource, volume.Spec.ClaimRef.Namespace, volume.Spec.ClaimRef.Name}
		if err := s.findTyped(r, claimAt, claim); err != nil || claim.Spec.VolumeName != "" {
			return err
		}
		Bind(claim, volume)
		return s.putTyped(claimAt, claim, watch.Modified)
	case pvcsResource:
		claim := &v1.PersistentVolumeClaim{}
		if err := typed(written, claim); err != nil || claim.Spec.VolumeName != "" ||
			claim.Annotations[storagehelpers.AnnSelectedNode] == "" {
			return err
		}
		class := &storagev1.StorageClass{}
		name := storagehelpers.GetPersistentVolumeClaimClass(claim)
		if err := s.findTyped(r, ref{classesResource, "", name}, class); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		volume := Provisioned(claim, class.Provisioner)
		if err := s.putTyped(ref{volumesResource, "", volume.Name}, volume, watch.Added); err != nil {
			return err
		}
		return s.putTyped(at, claim, watch.Modified)
	}
	return nil
}

func (s *Server) findTyped(r *http.Request, at ref, into any) error {
	o, err := s.find(r, at)
	if err != nil {
		return err
	}
	return typed(o, into)
}

func typed(o *object, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		return fmt.Errorf("reading a %s: %w", o.GetKind(), err)
	}
	return nil
}

// putTyped stores an object that was made or changed.
func (s *Server) putTyped(at ref, typed any, event watch.EventType) error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.putTyped(at, typed, event)
}

// putTyped stores an object that was made or changed. mu is held.
func (s *store) putTyped(at ref, typed any, event watch.EventType) error {
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return fmt.Errorf("writing %s %s: %w", at.Resource, at.name, err)
	}
	if event == watch.Added {
		s.create(at, &object{Object: o})
		return nil
	}
	s.put(at, &object{Object: o}, event)
	return nil
}
