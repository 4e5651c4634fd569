package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
)

// What is the new ReplicaSet called?
//
// Its name and its pods have the hash of the template in them, so that a creation that is repeated finds the first one,
// and the pods of two revisions can be told apart. The hash only gives a name: which ReplicaSet is the new one is
// decided by comparing templates. So it does not matter that the built-in controller computes another one. Either
// controller takes over the ReplicaSets of the other as they are.

// hashOf returns the hash of a template, after a number of collisions. It is computed from the JSON of the template,
// which leaves out what is not set: a version of Kubernetes that adds a field to pods does not change it.
func hashOf(template *corev1.PodTemplateSpec, collisions *int32) (string, error) {
	text, err := json.Marshal(template)
	if err != nil {
		return "", fmt.Errorf("hash of the pod template: %w", err)
	}
	h := fnv.New32a()
	h.Write(text) // never fails
	if collisions != nil {
		h.Write(binary.LittleEndian.AppendUint32(nil, uint32(*collisions)))
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32())), nil
}

// nameOf returns the Deployment's name with the hash, shortened to what the API server allows.
func nameOf(d *appsv1.Deployment, hash string) string {
	room := validation.DNS1123SubdomainMaxLength - len("-") - len(hash)
	return d.Name[:min(len(d.Name), room)] + "-" + hash
}
