package check

import (
	snapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions"
	"github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions/volumegroupsnapshot/v1"
)

func groupInformers(f snapshots.SharedInformerFactory) (v1.VolumeGroupSnapshotInformer,
	v1.VolumeGroupSnapshotContentInformer, v1.VolumeGroupSnapshotClassInformer) {
	v := f.Groupsnapshot().V1()
	return v.VolumeGroupSnapshots(), v.VolumeGroupSnapshotContents(), v.VolumeGroupSnapshotClasses()
}
