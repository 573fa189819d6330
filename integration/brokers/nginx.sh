#!/usr/bin/env bash
# nginx: C, edge-triggered epoll, a master that listens and two forked workers that accept.
#
# usage: nginx.sh PORT FOLDER [PREFIX…]     serves FOLDER/files at 127.0.0.1:PORT, behind PREFIX
set -eu
port=$1 folder=$2; shift 2
mkdir -p "$folder/files"
# The same bytes wherever it runs.
head -c 1000 /dev/zero | tr '\0' 'a' >"$folder/files/small"
seq 1 1000000 >"$folder/files/large"
chmod -R a+rX "$folder/files"
cat >"$folder/nginx.conf" <<END
daemon off;
worker_processes 2;
pid $folder/nginx.pid;
error_log $folder/error.log;
events { worker_connections 512; }
http {
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000;
  client_body_temp_path $folder/body; proxy_temp_path $folder/proxy; fastcgi_temp_path $folder/fastcgi;
  uwsgi_temp_path $folder/uwsgi; scgi_temp_path $folder/scgi;
  server { listen ${TEST_HOST:-127.0.0.1}:$port; root $folder/files; default_type application/octet-stream; }
}
END
PATH=$PATH:/usr/sbin exec "$@" /usr/sbin/nginx -e "$folder/error.log" -c "$folder/nginx.conf"
