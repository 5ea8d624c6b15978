#!/bin/sh
# Make the certificates, the password and the secret of the cluster in the folder `secrets`. Needs openssl.
# Keep the folder private, and out of version control. Also makes the folder `work`, for the files of sessions.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir secrets
mkdir -p work  # Docker would make it as root, and the user of the image, 1000, could not write to it
case $(id -u) in
  0) chown 1000:1000 work ;;
  1000) ;;
  *) chmod 1777 work ;;
esac
cd secrets

curve="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
# shellcheck disable=SC2086  # several words
openssl req -x509 $curve -days 3650 -subj "/CN=parley-nats-ca" -keyout ca-key.pem -out ca.pem
# shellcheck disable=SC2086
openssl req $curve -subj "/CN=nats" -keyout nats-key.pem -out nats.csr
printf '%s\n' "subjectAltName=DNS:nats-1,DNS:nats-2,DNS:nats-3" "extendedKeyUsage=serverAuth,clientAuth" > names
openssl x509 -req -in nats.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 825 -extfile names -out nats.pem
rm nats.csr names
chmod 644 ca.pem  # hosts and gateways read it as another user

password=$(openssl rand -hex 32)
echo "NATS_PASSWORD=$password" > nats.env
echo "PARLEY_NATS_CREDENTIALS=parley:$password" > parley.env
echo "PARLEY_CLUSTER_SECRET=$(openssl rand -hex 32)" >> parley.env
