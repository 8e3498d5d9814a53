package workloadfile

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/overlayserver"
)

// claimVolumes adds what a StatefulSet makes of its volumeClaimTemplates for a pod: a claim by each, which the pod
// mounts. A claim that exists is kept, as it would be.
func (r *Reader) claimVolumes(pod *v1.Pod, templates []v1.PersistentVolumeClaim) error {
	for i := range templates {
		claim := templates[i].DeepCopy()
		volume := v1.Volume{Name: claim.Name,
			VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}}
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
		claim.Name, claim.Namespace, claim.UID = claim.Name+"-"+pod.Name, pod.Namespace, uuid.NewUUID()
		claim.CreationTimestamp = metav1.NewTime(r.Now)
		volume.PersistentVolumeClaim.ClaimName = claim.Name
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
		exists, err := r.Cluster.Exists(v1.SchemeGroupVersion.WithResource("persistentvolumeclaims"),
			claim.Namespace, claim.Name)
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
		r.Objects = append(r.Objects, &unstructured.Unstructured{Object: o})
	}
	return nil
}

// provision gives the claims of the manifests the class that they would get. Claims that do not wait for a node get the
// volume that exists for them, or else a provisioned one: it is not known which nodes would not reach that.
func (r *Reader) provision() error {
	var classes *storagev1.StorageClassList
	var volumes []*unstructured.Unstructured
	var there *static
	for _, u := range r.Objects {
		if kindOf(u) != "PersistentVolumeClaim" {
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
		waits := false
		if class != nil {
			claim.Spec.StorageClassName = &class.Name
			waits = class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
		}
		isBound := false
		if !waits || claim.Spec.VolumeName != "" {
			if there == nil {
				var err error
				if there, err = r.static(); err != nil {
					return err
				}
			}
			var err error
			if isBound, err = there.bind(claim); err != nil {
				return err
			}
		}
		if !isBound && !waits && class != nil && claim.Spec.VolumeName == "" &&
			class.Provisioner != storagehelpers.NotSupportedProvisioner {
			volume, err := runtime.DefaultUnstructuredConverter.ToUnstructured(overlayserver.Provisioned(claim,
				class.Provisioner))
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
	r.Objects = append(r.Objects, volumes...)
	if there != nil {
		return there.write(&r.Workload)
	}
	return nil
}

// static are the existing volumes, in the manifests and in the cluster.
type static struct {
	volumes []*v1.PersistentVolume
	// from are the volumes of the manifests, by name, and taken the volumes that claims of the manifests are bound to.
	from  map[string]*unstructured.Unstructured
	taken []*v1.PersistentVolume
}

func (r *Reader) static() (*static, error) {
	s := &static{from: map[string]*unstructured.Unstructured{}}
	for _, u := range r.Objects {
		if kindOf(u) != "PersistentVolume" {
			continue
		}
		volume := &v1.PersistentVolume{}
		if err := convert(u, volume); err != nil {
			return nil, fmt.Errorf("PersistentVolume %q: %w", u.GetName(), err)
		}
		volume.Status.Phase = v1.VolumeAvailable
		s.volumes, s.from[volume.Name] = append(s.volumes, volume), u
	}
	var list v1.PersistentVolumeList
	if err := r.Cluster.Read("/api/v1/persistentvolumes", &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if s.from[list.Items[i].Name] == nil {
			s.volumes = append(s.volumes, &list.Items[i])
		}
	}
	return s, nil
}

// bind binds a claim to a volume, as the controller of volumes would, where there is one for it: the one that it names,
// or the smallest.
func (s *static) bind(claim *v1.PersistentVolumeClaim) (bool, error) {
	candidates := s.volumes
	if name := claim.Spec.VolumeName; name != "" {
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(volume *v1.PersistentVolume) bool {
			return volume.Name != name
		})
	}
	volume, err := storagehelpers.FindMatchingVolume(claim, candidates, nil, nil, false, true)
	if err != nil || volume == nil {
		return false, err
	}
	overlayserver.Bind(claim, volume)
	s.taken = append(s.taken, volume)
	return true, nil
}

// write adds the volumes that are bound.
func (s *static) write(w *Workload) error {
	for _, volume := range s.taken {
		volume.APIVersion, volume.Kind = "v1", "PersistentVolume"
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(volume)
		if err != nil {
			return fmt.Errorf("PersistentVolume %q: %w", volume.Name, err)
		}
		if u := s.from[volume.Name]; u != nil {
			u.Object = o
		} else {
			w.Objects = append(w.Objects, &unstructured.Unstructured{Object: o})
		}
	}
	return nil
}

// classOf returns the class of a claim: the one it names, or where it names none the newest that is one by default. nil
// is none.
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
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" &&
			(newest == nil || newest.CreationTimestamp.Before(&class.CreationTimestamp)) {
			newest = class
		}
	}
	return newest
}
