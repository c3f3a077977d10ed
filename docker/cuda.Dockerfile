# Odeum on an NVIDIA GPU. Build in the root of a clone:
#     docker build --file docker/cuda.Dockerfile --tag odeum:cuda .
#     docker run --rm --gpus all --ipc host --volume "$PWD/runs:/home/user/runs" odeum:cuda compare cifar100 --seeds 3
# PyPI's torch brings its own CUDA libraries, so the host needs the driver and the NVIDIA container toolkit only.
# We have neither built this image nor run Odeum on a GPU.
FROM python:3.11-slim

WORKDIR /odeum
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt ".[hf]" && rm -rf /odeum

RUN useradd --create-home user && mkdir -p /home/user/runs /home/user/data && chown -R user /home/user
USER user
WORKDIR /home/user
ENV ODEUM_DATA=/home/user/data
ENTRYPOINT ["odeum"]
CMD ["--help"]
