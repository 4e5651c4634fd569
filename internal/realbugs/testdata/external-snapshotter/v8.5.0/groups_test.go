package check

import (
	snapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions"
	"github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions/volumegroupsnapshot/v1beta2"
)

func groupInformers(f snapshots.SharedInformerFactory) (v1beta2.VolumeGroupSnapshotInformer,
	v1beta2.VolumeGroupSnapshotContentInformer, v1beta2.VolumeGroupSnapshotClassInformer) {
	v := f.Groupsnapshot().V1beta2()
	return v.VolumeGroupSnapshots(), v.VolumeGroupSnapshotContents(), v.VolumeGroupSnapshotClasses()
}
