// Package v1 has the Go types of the resources etcdclusters and etcdbackups of etcd.example.com.
//
// The methods in zz_generated.deepcopy.go and the CustomResourceDefinitions in deploy are generated of these types:
//
//	go generate ./api/v1
//
// # Reading order
//
// types.go: EtcdCluster. recovery.go: a quorum that is lost for good. tls.go: certificates. backup.go: EtcdBackup.
//
// +kubebuilder:object:generate=true
// +groupName=etcd.example.com
package v1

//go:generate -command controller-gen go tool -modfile=../../../../internal/tools/go.mod controller-gen
//go:generate controller-gen object crd paths=. output:crd:dir=../../deploy
